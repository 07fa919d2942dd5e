/** build/docs.ts makes this module. */
declare module 'virtual:examples' {
  /** The examples of the docs that run in a page, by id. Each function runs its example. */
  export const EXAMPLES: Readonly<Record<string, () => Promise<unknown>>>;
}
