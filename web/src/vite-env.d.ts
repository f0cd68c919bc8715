/** What the build fills in. */
interface ImportMeta {
  readonly env: {
    /** Where public/ is, seen from the built files. */
    readonly BASE_URL: string;
  };
}
