/** Made by build/docs.ts. */
declare module 'virtual:examples' {
  /** Examples of the docs that run in a page, by id; importing one runs it. */
  export const EXAMPLES: Readonly<Record<string, () => Promise<unknown>>>;
}
