/**
 * The page's only trusted-types policy. `mlcc serve` sends it in a Content-Security-Policy under
 * which the browser accepts no string as HTML or as a script's URL, so neither a model's text nor a
 * library can create a script. The engine's own worker is allowed.
 */

interface Factory {
  createPolicy(name: string, rules: { createScriptURL(url: string): string }): unknown;
}

/** In browsers without trusted types, the rest of the policy still applies. */
export function allowOwnScriptsOnly(): void {
  const { trustedTypes } = globalThis as { trustedTypes?: Factory };
  trustedTypes?.createPolicy('default', {
    createScriptURL(url) {
      const { origin, pathname } = new URL(url, location.href);
      if (origin === location.origin && pathname.endsWith('/worker.js')) return url;
      throw new TypeError(`${url} is no script of this page`);
    },
  });
}
