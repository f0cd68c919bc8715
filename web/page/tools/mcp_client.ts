/**
 * A client of one MCP server: Model Context Protocol 2025-06-18, streamable HTTP. Only tools.
 *
 * Everything that the server sends is untrusted: sizes, numbers and times are bounded, and results
 * are text. No cookies are sent, and redirects are refused, since they could lead anywhere.
 */

import { lines } from '../../src/openai/sse.js';

export const LIMITS = {
  tools: 128,
  /** Characters of a tool's description and schema. */
  toolText: 16_384,
  resultBytes: 65_536,
  answerBytes: 1_048_576,
  timeoutMs: 30_000,
} as const;

const VERSION = '2025-06-18';
const NAME = /^[\w.-]{1,64}$/;

/** A tool in OpenAI's format. */
export interface FunctionTool {
  readonly type: 'function';
  readonly function: {
    readonly name: string;
    readonly description: string;
    readonly parameters: object;
  };
}

interface Message {
  readonly id?: unknown;
  readonly method?: unknown;
  readonly result?: unknown;
  readonly error?: { readonly message?: unknown };
}

/** An error for people: the server is unreachable, refuses, or sends what it should not. */
export class ToolServerError extends Error {
  override readonly name = 'ToolServerError';
}

/** The address of a server that may be used: https, or this machine. Raises ToolServerError. */
export function serverAddress(typed: string): string {
  const text = typed.trim();
  const url = URL.parse(text);
  if (!url || !(url.protocol === 'https:' || url.protocol === 'http:')) {
    throw new ToolServerError(
      'Type the address of an MCP server, such as https://example.org/mcp.',
    );
  }
  const isHere = /^(localhost|127\.0\.0\.1|\[::1\])$/.test(url.hostname);
  if (url.protocol === 'http:' && !isHere) {
    throw new ToolServerError('Only https is safe to another machine; http is for this one.');
  }
  if (url.username || url.password) {
    throw new ToolServerError('Leave out the name and password: the page would store them.');
  }
  url.hash = '';
  return url.href;
}

export class McpClient {
  readonly address: string;
  #session: string | null = null;
  #version: string | null = null;
  #lastId = 0;

  /** `address`: from `serverAddress`. */
  constructor(address: string) {
    this.address = address;
  }

  /** Begin a session and list the tools. Raises ToolServerError. */
  async connect(): Promise<FunctionTool[]> {
    this.#session = this.#version = null;
    const clientInfo = { name: 'mlcc', title: 'mlcc chat page', version: '1' };
    const begun = await this.#request('initialize', {
      protocolVersion: VERSION,
      capabilities: {},
      clientInfo,
    });
    const { protocolVersion } = begun as { protocolVersion?: unknown };
    this.#version = typeof protocolVersion === 'string' ? protocolVersion : VERSION;
    await this.#send({ jsonrpc: '2.0', method: 'notifications/initialized' }, deadline());
    return this.#list();
  }

  /** The text of a tool's result. An error of the tool is text too, for the model. */
  async call(name: string, given: string): Promise<string> {
    const params = { name, arguments: argumentsOf(given) };
    try {
      return resultText(await this.#request('tools/call', params));
    } catch (error) {
      if (!(error instanceof SessionEnded)) throw error;
      await this.connect();
      return resultText(await this.#request('tools/call', params));
    }
  }

  /** End the session; a server that does not answer is not waited for. */
  close(): void {
    if (this.#session === null) return;
    const init = { method: 'DELETE', headers: this.#headers(), ...SAFE, signal: deadline() };
    void fetch(this.address, init).catch(() => {});
    this.#session = null;
  }

  async #list(): Promise<FunctionTool[]> {
    const found: FunctionTool[] = [];
    let cursor: unknown;
    do {
      const page = await this.#request('tools/list', cursor === undefined ? {} : { cursor });
      const { tools, nextCursor } = page as { tools?: unknown; nextCursor?: unknown };
      if (!Array.isArray(tools) || tools.length === 0) break;
      found.push(...tools.flatMap(toolOf));
      cursor = nextCursor;
    } while (typeof cursor === 'string' && found.length < LIMITS.tools);
    return found.slice(0, LIMITS.tools);
  }

  async #request(method: string, params: object): Promise<unknown> {
    this.#lastId += 1;
    const id = this.#lastId;
    const signal = deadline();
    try {
      const answer = await this.#send({ jsonrpc: '2.0', id, method, params }, signal);
      const { result, error } = await this.#find(answer, id);
      if (error) throw new ToolServerError(`It refuses: ${String(error.message).slice(0, 500)}`);
      return result ?? {};
    } catch (error) {
      if (signal.aborted)
        throw new ToolServerError(`No answer within ${LIMITS.timeoutMs / 1000} s.`);
      throw error;
    }
  }

  async #send(message: object, signal: AbortSignal): Promise<Response> {
    const init = { method: 'POST', headers: this.#headers(), body: JSON.stringify(message) };
    let answer: Response;
    try {
      answer = await fetch(this.address, { ...init, ...SAFE, signal });
    } catch (error) {
      if (signal.aborted) throw error;
      throw new ToolServerError(
        'It cannot be reached from this page. It must run, allow this page’s origin (CORS, with the header Mcp-Session-Id exposed), and be named by “mlcc serve --mcp URL”.',
      );
    }
    if (answer.status === 404 && this.#session !== null) throw new SessionEnded();
    if (!answer.ok) throw new ToolServerError(`It answers with the status ${answer.status}.`);
    this.#session = answer.headers.get('mcp-session-id') ?? this.#session;
    return answer;
  }

  #headers(): Headers {
    const headers = new Headers({
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
    });
    if (this.#version !== null) headers.set('mcp-protocol-version', this.#version);
    if (this.#session !== null) headers.set('mcp-session-id', this.#session);
    return headers;
  }

  /** The response with this id: the body, or an event of its stream. */
  async #find(answer: Response, id: number): Promise<Message> {
    for await (const text of messagesOf(answer)) {
      const message = parsed(text);
      if (message.id === id && message.method === undefined) return message;
    }
    throw new ToolServerError('Its answer has no result.');
  }
}

const SAFE = { credentials: 'omit', redirect: 'error', referrerPolicy: 'no-referrer' } as const;

class SessionEnded extends ToolServerError {
  constructor() {
    super('Its session has ended.');
  }
}

function deadline(): AbortSignal {
  return AbortSignal.timeout(LIMITS.timeoutMs);
}

/** The JSON texts of a response: its body, or the data of its server-sent events. */
async function* messagesOf(answer: Response): AsyncGenerator<string, void, undefined> {
  if (!answer.body) return;
  const body = answer.body.pipeThrough(bounded());
  if (!/^text\/event-stream\b/i.test(answer.headers.get('content-type') ?? '')) {
    yield await new Response(body).text();
    return;
  }
  let held: string[] = [];
  for await (const raw of lines(body)) {
    const line = raw.endsWith('\r') ? raw.slice(0, -1) : raw;
    if (line.startsWith('data:')) held.push(line.slice('data:'.length));
    else if (line === '' && held.length > 0) {
      yield held.join('\n');
      held = [];
    }
  }
}

/** Ends a body that is too large: one without line ends, too. */
function bounded(): TransformStream<Uint8Array, Uint8Array> {
  let size = 0;
  return new TransformStream({
    transform(chunk, controller) {
      size += chunk.byteLength;
      if (size <= LIMITS.answerBytes) controller.enqueue(chunk);
      else controller.error(new ToolServerError('Its answer is larger than 1 MB.'));
    },
  });
}

function parsed(text: string): Message {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null) return value;
  } catch {
    // below
  }
  throw new ToolServerError('Its answer is no JSON-RPC.');
}

/** A listed tool; none if a name, a text or a schema is not usable. */
function toolOf(listed: unknown): FunctionTool[] {
  const { name, description = '', inputSchema } = (listed ?? {}) as Record<string, unknown>;
  if (typeof name !== 'string' || !NAME.test(name) || typeof description !== 'string') return [];
  if (typeof inputSchema !== 'object' || inputSchema === null) return [];
  if (description.length + JSON.stringify(inputSchema).length > LIMITS.toolText) return [];
  return [{ type: 'function', function: { name, description, parameters: inputSchema } }];
}

/** Arguments as the model wrote them. Raises ToolServerError for what is no object. */
function argumentsOf(text: string): object {
  try {
    const value: unknown = JSON.parse(text.trim() || '{}');
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  } catch {
    // below
  }
  throw new ToolServerError('The model’s arguments are no JSON object.');
}

/** The text of a result, at most LIMITS.resultBytes; other contents are named. */
function resultText(result: unknown): string {
  const { content, structuredContent, isError } = (result ?? {}) as Record<string, unknown>;
  const parts = (Array.isArray(content) ? content : []).map((part: unknown) => {
    const { type, text } = (part ?? {}) as Record<string, unknown>;
    return typeof text === 'string'
      ? text
      : `[${String(type).slice(0, 40)}, not shown to the model]`;
  });
  const plain =
    parts.length === 0 && structuredContent ? [JSON.stringify(structuredContent)] : parts;
  const text = `${isError === true ? 'Error: ' : ''}${plain.join('\n')}`;
  const encoded = new TextEncoder().encode(text);
  if (encoded.byteLength <= LIMITS.resultBytes) return text;
  const kept = new TextDecoder().decode(encoded.subarray(0, LIMITS.resultBytes));
  return `${kept.replace(/\ufffd+$/, '')}\n[cut at 64 kB of ${encoded.byteLength} bytes]`;
}
