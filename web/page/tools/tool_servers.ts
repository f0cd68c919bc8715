/**
 * The MCP servers that the visitor added, kept in localStorage, and the tools that answers may
 * call. A call runs only if the visitor allows it: once, or always in one conversation of this tab.
 */

import { errorText } from '../engines/error_advice.js';
import { storeText, type TextStore } from '../settings/storage.js';
import { type FunctionTool, LIMITS, McpClient, serverAddress } from './mcp_client.js';

export interface ToolServer {
  readonly address: string;
  readonly isOn: boolean;
  /** Its tools' names, once it is connected. */
  readonly tools: readonly string[];
  readonly state: 'off' | 'connecting' | 'connected' | 'failed';
  /** Why it failed, or "". */
  readonly fault: string;
}

interface Entry {
  address: string;
  isOn: boolean;
  client: McpClient | null;
  tools: readonly FunctionTool[];
  state: ToolServer['state'];
  fault: string;
}

const KEY = 'mlcc.mcp.1';
const MOST_SERVERS = 16;
/** Calls that run one after the other without a press of the visitor. */
export const MOST_UNASKED = 20;

export class ToolServers {
  readonly #store: TextStore | null;
  readonly #changed: () => void;
  readonly #entries: Entry[] = [];
  /** "conversation tool" of the calls that are always allowed. */
  readonly #allowed = new Set<string>();
  readonly #runs = new Map<string, Promise<string>>();
  #unasked = 0;
  #permitted: readonly string[] | null = null;

  constructor(store: TextStore | null, changed: () => void) {
    this.#store = store;
    this.#changed = changed;
    for (const { address, isOn } of readKept(store)) this.#entries.push(entryOf(address, isOn));
  }

  /** The addresses that the page's policy permits, null = all; the permitted ones are offered. */
  begin(permitted: readonly string[] | null): void {
    this.#permitted = permitted;
    for (const address of permitted ?? []) {
      if (!this.#find(address)) this.#entries.push(entryOf(address, false));
    }
    for (const entry of this.#entries) if (entry.isOn) void this.#connect(entry);
    this.#changed();
  }

  get list(): readonly ToolServer[] {
    return this.#entries.map(({ address, isOn, tools, state, fault }) => ({
      address,
      isOn,
      state,
      fault,
      tools: tools.map((tool) => tool.function.name),
    }));
  }

  /** Add a server and switch it on. Raises ToolServerError for an address that may not be used. */
  add(typed: string): void {
    const address = serverAddress(typed);
    if (this.#permitted !== null && !this.#permitted.includes(address)) {
      throw new Error(
        `This page may not reach ${address}. Start the server with “mlcc serve --mcp ${address}”.`,
      );
    }
    if (this.#entries.length >= MOST_SERVERS) throw new Error(`At most ${MOST_SERVERS} servers.`);
    if (!this.#find(address)) this.#entries.push(entryOf(address, false));
    this.switch(address, true);
  }

  switch(address: string, isOn: boolean): void {
    const entry = this.#find(address);
    if (!entry) return;
    entry.isOn = isOn;
    if (isOn) void this.#connect(entry);
    else this.#disconnect(entry);
    this.#keep();
  }

  remove(address: string): void {
    const entry = this.#find(address);
    if (!entry) return;
    this.#disconnect(entry);
    this.#entries.splice(this.#entries.indexOf(entry), 1);
    this.#keep();
  }

  /** The tools of all servers; of two with one name, the first. */
  get tools(): readonly FunctionTool[] {
    const found = new Map<string, FunctionTool>();
    for (const tool of this.#entries.flatMap(({ tools }) => tools)) {
      if (!found.has(tool.function.name)) found.set(tool.function.name, tool);
    }
    return [...found.values()].slice(0, LIMITS.tools);
  }

  /** The host of the server with this tool; null if no server has it. */
  hostOf(name: string): string | null {
    const entry = this.#owner(name);
    return entry ? new URL(entry.address).host : null;
  }

  /** Whether a tool may run without being asked for again. */
  isAllowed(conversation: string, name: string): boolean {
    return this.#unasked < MOST_UNASKED && this.#allowed.has(`${conversation} ${name}`);
  }

  /** Always allow a tool in a conversation, while this tab lives. */
  allow(conversation: string, name: string): void {
    this.#allowed.add(`${conversation} ${name}`);
  }

  /** Run a call, once for each `id`; `isAsked`: the visitor pressed a button for it. */
  run(id: string, name: string, given: string, isAsked: boolean): Promise<string> {
    this.#unasked = isAsked ? 0 : this.#unasked + 1;
    const running = this.#runs.get(id);
    if (running) return running;
    const client = this.#owner(name)?.client;
    if (!client)
      return Promise.reject(new Error(`No server with the tool ${name} is switched on.`));
    const run = client.call(name, given);
    this.#runs.set(id, run);
    run.catch(() => this.#runs.delete(id)); // it may be tried again
    return run;
  }

  #owner(name: string): Entry | undefined {
    return this.#entries.find(({ tools }) => tools.some((tool) => tool.function.name === name));
  }

  #find(address: string): Entry | undefined {
    return this.#entries.find((entry) => entry.address === address);
  }

  async #connect(entry: Entry): Promise<void> {
    this.#disconnect(entry);
    const client = new McpClient(entry.address);
    Object.assign(entry, { client, state: 'connecting' });
    this.#changed();
    const isCurrent = () => entry.client === client;
    try {
      const tools = await client.connect();
      if (isCurrent()) Object.assign(entry, { tools, state: 'connected' });
      else client.close();
    } catch (error) {
      if (isCurrent()) Object.assign(entry, { state: 'failed', fault: errorText(error) });
    }
    this.#changed();
  }

  #disconnect(entry: Entry): void {
    entry.client?.close();
    Object.assign(entry, { client: null, tools: [], state: 'off', fault: '' });
  }

  #keep(): void {
    const kept = this.#entries.map(({ address, isOn }) => ({ address, isOn }));
    storeText(this.#store, KEY, JSON.stringify(kept));
    this.#changed();
  }
}

function entryOf(address: string, isOn: boolean): Entry {
  return { address, isOn, client: null, tools: [], state: 'off', fault: '' };
}

function readKept(store: TextStore | null): { address: string; isOn: boolean }[] {
  try {
    const found: unknown = JSON.parse(store?.getItem(KEY) ?? '[]');
    if (!Array.isArray(found)) return [];
    return found.slice(0, MOST_SERVERS).map((entry: { address: string; isOn?: unknown }) => ({
      address: serverAddress(entry.address),
      isOn: entry.isOn === true,
    }));
  } catch {
    return [];
  }
}
