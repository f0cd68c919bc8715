/**
 * Splits a growing answer into complete sentences for screen readers: single tokens would stutter,
 * and a whole answer would come late. Pure; `ui/announcer.ts` announces them.
 */

// The end of a sentence is followed by a space, unlike the dots in "3.14" and "e.g.,".
const END = /[.!?…][)"'”’\]]*\s|[。！？]|\n/g;

export class Sentences {
  #spoken = 0;

  /** Sentences completed since the last call, or "". `text`: the answer so far. */
  next(text: string): string {
    let end = this.#spoken;
    END.lastIndex = this.#spoken;
    for (let found = END.exec(text); found; found = END.exec(text)) end = END.lastIndex;
    return this.#take(text, end);
  }

  /** The text that was not returned yet. */
  rest(text: string): string {
    return this.#take(text, text.length);
  }

  #take(text: string, end: number): string {
    const piece = text.slice(this.#spoken, end);
    this.#spoken = end;
    return plain(piece);
  }
}

/** The text without Markdown characters, which would be read out as "asterisk asterisk". */
function plain(text: string): string {
  return text
    .replace(/^\s*(```.*|[-*_]{3,})$/gm, '')
    .replace(/^\s*(#{1,6}|>|[-*+])\s+/gm, '')
    .replace(/\*\*|__|`/g, '')
    .replace(/\s+/g, ' ')
    .trim();
}
