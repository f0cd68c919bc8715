/** Values that the build inserts. */
interface ImportMeta {
  readonly env: {
    /** Location of public/ relative to the built files. */
    readonly BASE_URL: string;
  };
}
