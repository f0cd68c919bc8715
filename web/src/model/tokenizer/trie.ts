/** A trie of strings by UTF-16 units, in typed arrays: a vocabulary of 250,000 pieces takes 20 MB. */

const LEAST = 1 << 12;
const NONE = -1;

export class Trie {
  /** Hash table of edges, with open addressing: (node, unit) -> node. */
  #nodes = new Int32Array(LEAST).fill(NONE);
  #units = new Uint16Array(LEAST);
  #targets = new Int32Array(LEAST);
  #edges = 0;
  /** Node -> id of the string that ends there. */
  #ids = new Int32Array(LEAST).fill(NONE);

  add(text: string, id: number): void {
    let node = 0;
    for (let i = 0; i < text.length; i += 1) node = this.#child(node, text.charCodeAt(i));
    this.#ids[node] = id;
  }

  /** Calls `found` with the end and the id of each string that begins at a place, shortest first. */
  prefixes(text: string, start: number, found: (end: number, id: number) => void): void {
    let node = 0;
    for (let at = start; at < text.length; at += 1) {
      const unit = text.charCodeAt(at);
      const slot = this.#slot(node, unit);
      if (this.#nodes[slot] === NONE) return;
      node = this.#targets[slot] as number;
      const id = this.#ids[node] as number;
      if (id !== NONE) found(at + 1, id);
    }
  }

  #child(node: number, unit: number): number {
    let slot = this.#slot(node, unit);
    if (this.#nodes[slot] === NONE) {
      if (2 * (this.#edges + 2) > this.#nodes.length) {
        this.#grow();
        slot = this.#slot(node, unit);
      }
      this.#edges += 1;
      this.#put(slot, node, unit, this.#edges);
    }
    return this.#targets[slot] as number;
  }

  /** Where the edge is, or would be. */
  #slot(node: number, unit: number): number {
    const mask = this.#nodes.length - 1;
    let slot = (Math.imul(node, 0x9e3779b1) ^ Math.imul(unit + 1, 0x85ebca6b)) >>> 0;
    slot = (slot ^ (slot >>> 15)) & mask;
    while (this.#nodes[slot] !== NONE) {
      if (this.#nodes[slot] === node && this.#units[slot] === unit) return slot;
      slot = (slot + 1) & mask;
    }
    return slot;
  }

  #put(slot: number, node: number, unit: number, target: number): void {
    this.#nodes[slot] = node;
    this.#units[slot] = unit;
    this.#targets[slot] = target;
  }

  #grow(): void {
    const [nodes, units, targets, ids] = [this.#nodes, this.#units, this.#targets, this.#ids];
    const size = 2 * nodes.length;
    this.#nodes = new Int32Array(size).fill(NONE);
    this.#units = new Uint16Array(size);
    this.#targets = new Int32Array(size);
    this.#ids = new Int32Array(size / 2).fill(NONE);
    this.#ids.set(ids.subarray(0, Math.min(ids.length, size / 2)));
    nodes.forEach((node, slot) => {
      if (node === NONE) return;
      const unit = units[slot] as number;
      this.#put(this.#slot(node, unit), node, unit, targets[slot] as number);
    });
  }
}
