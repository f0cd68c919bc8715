/** The foot of a message: its buttons, and the switch between siblings. */

import type { Message } from '../../conversation/conversation.js';
import { duration, rate } from '../../rendering/format.js';
import { button, h } from '../dom.js';
import { icon } from '../icons.js';
import type { ToolRunner } from './tool_view.js';

/** Actions on messages, and their positions. */
export interface MessageEvents {
  /** Position among the siblings. */
  siblingIndex(message: Message): { index: number; count: number };
  /** Show the sibling `step` places after it. */
  onSwitch(message: Message, step: number): void;
  /** Generate a sibling of this answer. */
  onRegenerate(answer?: Message): void;
  /** Continue the last answer. */
  onContinue(): void;
  /** Add an edited sibling of this question. */
  onEdit(question: Message, text: string): void;
  /** Results of the last answer's tool calls, by id. */
  onResults(results: ReadonlyMap<string, string>): void;
  /** What runs the tool calls of an answer. */
  runner(answer: Message): ToolRunner;
}

/** The state of a message in the conversation. */
export interface MessageState {
  readonly isLast: boolean;
  /** Whether an engine is running. */
  readonly canAsk: boolean;
}

/** "‹ 2 of 3 ›", or null for a message without siblings. */
export function siblingSwitch(message: Message, events: MessageEvents): HTMLElement | null {
  const { index, count } = events.siblingIndex(message);
  if (count < 2) return null;
  const turn = (label: string, step: number, name: 'left' | 'right') => {
    const made = button(label, 'icon', () => events.onSwitch(message, step), icon(name));
    const end = step < 0 ? index === 0 : index === count - 1;
    made.disabled = end;
    return made;
  };
  const words = `${index + 1} of ${count}`;
  const label = message.role === 'user' ? 'Versions of this question' : 'Versions of this answer';
  return h(
    'div',
    { class: 'turner', attributes: { role: 'group', 'aria-label': label } },
    turn('Version before', -1, 'left'),
    h('span', '', words),
    turn('Next version', 1, 'right'),
  );
}

const ENDINGS = {
  stop: '',
  tool_calls: '',
  length: 'cut at the longest answer',
  stopped: 'stopped by you',
  interrupted: 'interrupted',
} as const;

/** "31 tokens/s · first after 120 ms · 245 tokens · prompt 812, 790 cached · stopped by you". */
export function figuresOf({ figures, end }: Message): string {
  const parts: string[] = [];
  if (figures) {
    const { tokensPerSecond, firstTokenMs, tokens, promptTokens, cachedTokens } = figures;
    if (tokensPerSecond) parts.push(`${rate(tokensPerSecond)} tokens/s`);
    parts.push(`first after ${duration(firstTokenMs)}`);
    parts.push(tokens === 1 ? '1 token' : `${tokens} tokens`);
    parts.push(`prompt ${promptTokens}${cachedTokens ? `, ${cachedTokens} cached` : ''}`);
  }
  if (end) parts.push(ENDINGS[end]);
  return parts.filter(Boolean).join(' · ');
}
