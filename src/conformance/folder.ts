/**
 * A folder of golden vectors, wherever it lies: conformance reads it through this and never touches a file system itself.
 *
 * @module
 */

/** A folder that can be read. */
export interface VectorFolder {
  /** What messages and suites call it: the folder's own name. */
  readonly name: string;
  /**
   * Reads a file.
   *
   * @param path - relative, with `/`, never leaving the folder
   * @throws {RopewalkError} FORMAT when the file is missing or the path leaves the folder
   */
  read(path: string): Uint8Array;
  /**
   * Says whether a file exists.
   *
   * @param path - as {@link read}
   */
  has(path: string): boolean;
  /** Names the folders directly below. */
  folders(): readonly VectorFolder[];
}
