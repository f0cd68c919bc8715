/** What a tab remembers: the conversation and the settings, over reloads and over nonsense. */

import { expect, test } from 'vitest';
import { requestOf } from '../page/chat.js';
import { Conversation } from '../page/conversation.js';
import { Sentences } from '../page/sentences.js';
import { DEFAULTS, keepSettings, readSettings, requestFields } from '../page/settings.js';
import type { TextStore } from '../page/storage.js';
import { storageOr } from '../page/storage.js';

class MapStore implements TextStore {
  readonly values = new Map<string, string>();
  getItem = (key: string) => this.values.get(key) ?? null;
  setItem = (key: string, value: string) => void this.values.set(key, value);
  removeItem = (key: string) => void this.values.delete(key);
}

test('a conversation survives a reload, and what was being written is interrupted', () => {
  const store = new MapStore();
  const before = new Conversation(store);
  before.ask('Why?');
  const first = before.answer();
  Object.assign(first, { content: 'Because.', end: 'stop' });
  first.figures = { firstTokenMs: 12, tokens: 3, tokensPerSecond: null };
  before.ask('And now?');
  before.answer().content = 'Well';
  before.save();

  const after = new Conversation(store);
  expect(after.messages.slice(0, 3)).toEqual(before.messages.slice(0, 3));
  expect(after.messages[3]).toEqual({ role: 'assistant', content: 'Well', end: 'interrupted' });
});

test('clear forgets, here and in the storage', () => {
  const store = new MapStore();
  const conversation = new Conversation(store);
  conversation.ask('secret');
  conversation.clear();
  expect(conversation.isEmpty).toBe(true);
  expect([...store.values.values()].join()).not.toContain('secret');
});

test('only an answer is dropped, never a question', () => {
  const conversation = new Conversation(null);
  conversation.ask('Why?');
  conversation.dropAnswer();
  expect(conversation.messages).toEqual([{ role: 'user', content: 'Why?' }]);
});

test.each([
  'no JSON',
  '{}',
  '[1]',
  '[{"role":"system","content":"x"}]',
  '[{"role":"user","content":1}]',
  '[{"role":"user","content":"a"},{"role":"assistant","content":"b","end":"never"}]',
  '[{"role":"assistant","content":"b","figures":{"tokens":"3"}}]',
])('what is no conversation is none: %s', (kept) => {
  const store = new MapStore();
  new Conversation(store).ask('x');
  for (const key of store.values.keys()) store.values.set(key, kept);
  expect(new Conversation(store).messages).toEqual([]);
});

test('a full or forbidden storage loses nothing while the page is there', () => {
  const full = new MapStore();
  full.setItem = () => {
    throw new DOMException('full', 'QuotaExceededError');
  };
  const conversation = new Conversation(full);
  conversation.ask('Why?');
  expect(conversation.messages).toHaveLength(1);
  const refused = () => {
    throw new DOMException('no', 'SecurityError');
  };
  expect(storageOr(refused)).toBe(null);
});

test('settings are kept; unsound ones are the default again', () => {
  const store = new MapStore();
  const settings = { system: 'Be brief.', temperature: 0, topP: null, maxTokens: 64, seed: 7 };
  keepSettings(store, settings);
  expect(readSettings(store)).toEqual(settings);
  const unsound = { system: 3, temperature: 9, topP: 'x', maxTokens: 1.5, seed: -1 };
  keepSettings(store, unsound as never);
  expect(readSettings(store)).toEqual(DEFAULTS);
});

test('a request holds what is set and nothing else', () => {
  expect(requestFields(DEFAULTS)).toEqual({});
  const settings = { ...DEFAULTS, system: '  Be brief. ', temperature: 0, maxTokens: 64 };
  const figures = { firstTokenMs: 1, tokens: 1, tokensPerSecond: 1 };
  const asked = [
    { role: 'user', content: 'Why?' },
    { role: 'assistant', content: 'So.', end: 'stop', figures },
  ] as const;
  expect(requestOf(asked, settings)).toEqual({
    messages: [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'Why?' },
      { role: 'assistant', content: 'So.' },
    ],
    temperature: 0,
    max_tokens: 64,
  });
});

test('an answer is spoken by whole sentences, each once, without its marks', () => {
  const sentences = new Sentences();
  expect(sentences.next('Pi is 3.14')).toBe('');
  expect(sentences.next('Pi is 3.14, **about**. It')).toBe('Pi is 3.14, about.');
  expect(sentences.next('Pi is 3.14, **about**. It goes')).toBe('');
  expect(sentences.next('Pi is 3.14, **about**. It goes on!\n- `a`\n')).toBe('It goes on! a');
  expect(sentences.rest('Pi is 3.14, **about**. It goes on!\n- `a`\nend')).toBe('end');
});
