/**
 * Cuts a growing answer into whole sentences, for a screen reader: token by token it would stutter,
 * and only at the end it would be long silent. Pure; `ui/announcer.ts` speaks.
 */

// An end of sentence is followed by space: "3.14" and "e.g.," are none.
const END = /[.!?…][)"'”’\]]*\s|[。！？]|\n/g;

export class Sentences {
  #spoken = 0;

  /** What has become whole since the last call; "" if nothing. `text` is the answer so far. */
  next(text: string): string {
    let end = this.#spoken;
    END.lastIndex = this.#spoken;
    for (let found = END.exec(text); found; found = END.exec(text)) end = END.lastIndex;
    return this.#take(text, end);
  }

  /** All that was not said yet. */
  rest(text: string): string {
    return this.#take(text, text.length);
  }

  #take(text: string, end: number): string {
    const piece = text.slice(this.#spoken, end);
    this.#spoken = end;
    return plain(piece);
  }
}

/** Without marks that would be read out as "asterisk asterisk". */
function plain(text: string): string {
  return text
    .replace(/^\s*(```.*|[-*_]{3,})$/gm, '')
    .replace(/^\s*(#{1,6}|>|[-*+])\s+/gm, '')
    .replace(/\*\*|__|`/g, '')
    .replace(/\s+/g, ' ')
    .trim();
}
