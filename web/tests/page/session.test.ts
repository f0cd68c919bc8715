/** The model's session and the chat with a scripted engine: closing, storing, errors. */

import { expect, test } from 'vitest';
import { Chat } from '../../page/conversation/chat.js';
import { Conversation, type Message } from '../../page/conversation/conversation.js';
import type {
  ChatDelta,
  ChatEngine,
  ChatRequest,
  Engines,
} from '../../page/engines/engine_port.js';
import { ModelSession, type Phase } from '../../page/engines/model_session.js';
import { DEFAULTS } from '../../page/settings/settings.js';
import { ApiError, CancelledError, DeviceLostError } from '../../src/errors.js';

/** An engine whose deltas, loss and closing the test controls. */
class HandEngine implements ChatEngine {
  readonly info = { model: 'm' } as ChatEngine['info'];
  readonly lost: Promise<Error>;
  lose: (error: Error) => void = () => {};
  closed = 0;
  asked: ChatRequest[] = [];
  script: (ChatDelta | Error | 'wait')[] = [];

  constructor() {
    this.lost = new Promise((resolve) => {
      this.lose = resolve;
    });
  }

  async *stream(request: ChatRequest, signal: AbortSignal): AsyncGenerator<ChatDelta, void> {
    this.asked.push(request);
    for (const step of this.script) {
      if (step instanceof Error) throw step;
      if (step !== 'wait') yield step;
      else
        await new Promise((_, fail) => signal.addEventListener('abort', () => fail(signal.reason)));
    }
  }

  async close(): Promise<void> {
    this.closed += 1;
  }
}

/** Engines whose opening the test controls. */
class HandEngines implements Engines {
  readonly opened: { engine: HandEngine; open: () => void; fail: (e: Error) => void }[] = [];
  open(): Promise<ChatEngine> {
    return new Promise((resolve, fail) => {
      const engine = new HandEngine();
      this.opened.push({ engine, open: () => resolve(engine), fail });
    });
  }
  stored = async () => [];
  remove = async () => {};
}

function newSession(): { session: ModelSession; engines: HandEngines; phases: string[] } {
  const engines = new HandEngines();
  const phases: string[] = [];
  const session = new ModelSession(engines, {
    phase: (phase: Phase) => void phases.push(phase.kind),
    progress: () => {},
  });
  return { session, engines, phases };
}

const PLACE = { kind: 'url', url: 'https://h.example/m/' } as const;
const OTHER = { kind: 'url', url: 'https://h.example/n/' } as const;

test('a lost model is a failure, and retry starts it again', async () => {
  const { session, engines, phases } = newSession();
  const started = session.start(PLACE);
  engines.opened[0]?.open();
  await started;
  expect(session.engine).toBe(engines.opened[0]?.engine);
  engines.opened[0]?.engine.lose(new DeviceLostError('reset'));
  await engines.opened[0]?.engine.lost;
  await Promise.resolve();
  expect(session.engine).toBe(null);
  const again = session.retry();
  engines.opened[1]?.open();
  await again;
  expect(phases).toEqual(['starting', 'running', 'failed', 'starting', 'running']);
});

test('the late result of an abandoned start is closed, and its failure is not shown', async () => {
  const { session, engines, phases } = newSession();
  const first = session.start(PLACE);
  session.choose();
  engines.opened[0]?.open();
  await first;
  const second = session.start(PLACE);
  session.choose();
  engines.opened[1]?.fail(new CancelledError('given up'));
  await second;
  expect(engines.opened[0]?.engine.closed).toBe(1);
  expect(phases).toEqual(['starting', 'choosing', 'starting', 'choosing']);
});

test('another model ends the running one, whose loss is then ignored', async () => {
  const { session, engines, phases } = newSession();
  const first = session.start(PLACE);
  engines.opened[0]?.open();
  await first;
  const second = session.start(OTHER);
  engines.opened[0]?.engine.lose(new CancelledError('closed'));
  engines.opened[1]?.open();
  await second;
  expect(engines.opened[0]?.engine.closed).toBe(1);
  expect(phases).toEqual(['starting', 'running', 'starting', 'running']);
});

function newChat(engine: HandEngine) {
  const conversation = new Conversation();
  const ended: { message: Message; error: unknown }[] = [];
  const refused: { question: Message; error: unknown }[] = [];
  const endsInWork: unknown[] = [];
  const chat = new Chat(conversation, {
    listed: () => {},
    grew: (message) => void endsInWork.push(message.end),
    ended: (message, error) => void ended.push({ message, error }),
    refused: (question, error) => void refused.push({ question, error }),
    save: () => {},
    tools: () => [],
  });
  const ask = (question: string) => chat.ask(engine, DEFAULTS, question);
  return { conversation, chat, ended, refused, endsInWork, ask };
}

const COUNTS = { promptTokens: 5, cachedTokens: 4, completionTokens: 2 };
const TIMING = { ttft: 20, total: 90, ...COUNTS, prefill: 1, decode: 9 };

test('an answer is filled piece by piece, with its end and its figures', async () => {
  const engine = new HandEngine();
  engine.script = [
    { text: 'Be' },
    { text: 'cau', finish: 'length' },
    { text: 'se' },
    { text: '', timing: TIMING },
  ];
  const { conversation, endsInWork, ask } = newChat(engine);
  await ask('Why?');
  // If it were drawn as complete before its figures arrive, it would lack them.
  expect(endsInWork).toEqual([undefined, undefined, undefined]);
  expect(conversation.messages[1]).toMatchObject({
    role: 'assistant',
    content: 'Because',
    model: 'm',
    end: 'length',
    figures: {
      firstTokenMs: 20,
      tokens: 2,
      tokensPerSecond: 9,
      promptTokens: 5,
      cachedTokens: 4,
    },
  });
  await ask('And?');
  expect(engine.asked[1]?.messages.map(({ content }) => content)).toEqual([
    'Why?',
    'Because',
    'And?',
  ]);
});

test('a stopped answer keeps its text; an empty one is removed', async () => {
  const engine = new HandEngine();
  const { conversation, chat, ended, ask } = newChat(engine);
  for (const script of [[{ text: 'Be' }, 'wait'], ['wait']] as const) {
    engine.script = [...script];
    const asked = ask('Why?');
    await new Promise((resolve) => setTimeout(resolve, 5));
    expect(chat.isBusy).toBe(true);
    chat.stop();
    await asked;
  }
  expect(conversation.messages.map(({ content, end }) => [content, end])).toEqual([
    ['Why?', undefined],
    ['Be', 'stopped'],
    ['Why?', undefined],
  ]);
  expect(ended.map(({ error }) => error)).toEqual([null, null]);
});

test('a failure is reported, earlier text is kept, and regenerating adds a sibling', async () => {
  const engine = new HandEngine();
  const error = new DeviceLostError('reset');
  engine.script = [{ text: 'Be' }, error];
  const { conversation, chat, ended, ask } = newChat(engine);
  await ask('Why?');
  expect(ended[0]).toMatchObject({ message: { content: 'Be', end: 'interrupted' }, error });
  engine.script = [{ text: 'Because', finish: 'stop' }];
  await chat.regenerate(engine, DEFAULTS, conversation.last);
  expect(conversation.messages.map(({ content }) => content)).toEqual(['Why?', 'Because']);
  expect(conversation.siblingIndex(conversation.last as Message)).toEqual({ index: 1, count: 2 });
  expect(engine.asked[1]?.messages).toEqual([{ role: 'user', content: 'Why?' }]);
});

test.each([400, 500])('a question that gets %i', async (status) => {
  const engine = new HandEngine();
  const error = new ApiError(status, { message: 'no', type: 'api_error' });
  engine.script = [error];
  const { conversation, ended, refused, ask } = newChat(engine);
  await ask('Why?');
  const isRefused = status === 400;
  expect(conversation.messages).toHaveLength(isRefused ? 0 : 1);
  expect(refused).toMatchObject(isRefused ? [{ question: { content: 'Why?' }, error }] : []);
  expect(ended).toHaveLength(isRefused ? 0 : 1);
});

test.each([400, 500])('a regenerated answer that gets %i leaves the old one', async (status) => {
  const engine = new HandEngine();
  engine.script = [{ text: 'Because', finish: 'stop' }];
  const { conversation, chat, ended, refused, ask } = newChat(engine);
  await ask('Why?');
  const before = [...conversation.messages];
  const error = new ApiError(status, { message: 'no', type: 'api_error' });
  engine.script = [error];
  await chat.regenerate(engine, DEFAULTS, conversation.last);
  expect(conversation.messages).toEqual(before);
  expect(ended[1]).toMatchObject({ message: { content: '' }, error });
  expect(refused).toEqual([]);
});

test('a refused edited question leaves the shown path unchanged', async () => {
  const engine = new HandEngine();
  engine.script = [{ text: 'Because', finish: 'stop' }];
  const { conversation, chat, refused, ask } = newChat(engine);
  await ask('Why?');
  const before = [...conversation.messages];
  engine.script = [new ApiError(400, { message: 'no', type: 'api_error' })];
  await chat.ask(engine, DEFAULTS, 'Why not?', [], before[0]);
  expect(conversation.messages).toEqual(before);
  expect(refused).toMatchObject([{ question: { content: 'Why not?' } }]);
});

test('a cut answer is continued where it ended', async () => {
  const engine = new HandEngine();
  engine.script = [{ text: 'Be', finish: 'length' }];
  const { conversation, chat, ended, ask } = newChat(engine);
  await ask('Why?');
  engine.script = [{ text: 'cause', finish: 'stop' }];
  await chat.continueAnswer(engine, DEFAULTS);
  expect(conversation.last).toMatchObject({ content: 'Because', end: 'stop' });
  expect(engine.asked[1]?.messages.at(-1)).toEqual({
    role: 'assistant',
    content: 'Be',
    prefix: true,
  });
  engine.script = [new ApiError(400, { message: 'no', type: 'api_error' })];
  Object.assign(conversation.last as Message, { end: 'length' });
  await chat.continueAnswer(engine, DEFAULTS);
  expect(conversation.last).toMatchObject({ content: 'Because', end: 'length' });
  expect(ended).toHaveLength(3);
});

test('reasoning and tool calls are assembled from their pieces', async () => {
  const engine = new HandEngine();
  engine.script = [
    { text: '', reasoning: 'Hm' },
    { text: '', reasoning: '.' },
    { text: '', calls: [{ index: 0, id: 'a', function: { name: 'f', arguments: '{"x"' } }] },
    { text: '', calls: [{ index: 0, function: { arguments: ':1}' } }] },
    { text: '', calls: [{ index: 1, id: 'b', function: { name: 'g', arguments: '{}' } }] },
    { text: '', finish: 'tool_calls' },
  ];
  const { conversation, chat, ask } = newChat(engine);
  await ask('Do it');
  expect(conversation.last).toMatchObject({
    reasoning: 'Hm.',
    end: 'tool_calls',
    toolCalls: [
      { id: 'a', name: 'f', arguments: '{"x":1}' },
      { id: 'b', name: 'g', arguments: '{}' },
    ],
  });
  engine.script = [{ text: 'Done', finish: 'stop' }];
  await chat.sendToolResults(engine, DEFAULTS, new Map([['a', '1']]));
  expect(conversation.messages.map(({ role }) => role)).toEqual([
    'user',
    'assistant',
    'tool',
    'assistant',
  ]);
});
