/**
 * What the page was served with: `site.json` beside it, which `mlcc serve` answers. Its addresses
 * are relative to the page. A page that lies on any other host has the model beside it, if any.
 */

export interface Site {
  /** The address that the API's `v1/` stands below, or null: there is no server to ask. */
  readonly api: string | null;
  /** The folder of a model for the visitor's GPU, or null: the server offers none. */
  readonly model: string | null;
  /** Whether models run on the visitor's GPU at all. */
  readonly gpu: boolean;
}

interface SiteJson {
  readonly api?: string | null;
  readonly model?: string | null;
}

/** Never fails: what cannot be read is a page on its own. */
export async function readSite(page: URL): Promise<Site> {
  const json = await fetch(new URL('site.json', page))
    .then((answer): Promise<SiteJson> | SiteJson => (answer.ok ? answer.json() : {}))
    .catch((): SiteJson => ({}));
  const model = json.model === undefined ? 'model/' : json.model;
  return {
    api: json.api == null ? null : plainUrl(json.api, page),
    model: model === null ? null : plainUrl(model, page),
    gpu: model !== null,
  };
}

function plainUrl(path: string, page: URL): string {
  return new URL(path, page).href.split(/[?#]/)[0] ?? '';
}
