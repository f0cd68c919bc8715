/**
 * What the page's server offers: `site.json` beside the page, which `mlcc serve` generates. Its
 * addresses are relative to the page. On other hosts, a model may lie beside the page.
 */

export interface Site {
  /** The URL of the folder of the API's `v1/`; null: no server answers. */
  readonly api: string | null;
  /** The folder of a model for the visitor's GPU, or null. */
  readonly model: string | null;
  /** Whether models can run on the visitor's GPU. */
  readonly gpu: boolean;
  /** Whether the server loads and unloads models, and whether it fetches further ones. */
  readonly loads: boolean;
  readonly pulls: boolean;
  /** The MCP servers that the page's policy lets it reach; null: any. */
  readonly mcp: readonly string[] | null;
}

interface SiteJson {
  readonly api?: string | null;
  readonly model?: string | null;
  readonly loads?: boolean;
  readonly pulls?: boolean;
  readonly mcp?: readonly string[] | null;
}

/** Never fails: without a valid `site.json` the page has no server. */
export async function readSite(page: URL): Promise<Site> {
  const json = await fetch(new URL('site.json', page))
    .then((answer): Promise<SiteJson> | SiteJson => (answer.ok ? answer.json() : {}))
    .catch((): SiteJson => ({}));
  const model = json.model === undefined ? 'model/' : json.model;
  return {
    api: json.api == null ? null : plainUrl(json.api, page),
    model: model === null ? null : plainUrl(model, page),
    gpu: model !== null,
    loads: json.loads === true,
    pulls: json.pulls === true,
    mcp: json.mcp ?? null,
  };
}

function plainUrl(path: string, page: URL): string {
  return new URL(path, page).href.split(/[?#]/)[0] ?? '';
}
