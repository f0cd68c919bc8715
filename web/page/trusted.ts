/**
 * The page's one policy of trusted types. `mlcc serve` sends it with a Content-Security-Policy
 * under which the browser takes no string for HTML or for a script's address: whatever a model
 * says, and whatever a library does with it, no script comes of it. The engine's own worker is let
 * through.
 */

interface Factory {
  createPolicy(name: string, rules: { createScriptURL(url: string): string }): unknown;
}

/** Where a browser knows no trusted types, the rest of the policy holds. */
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
