/** Converts chunks of the API to deltas of an answer, for servers and tabs alike. */

import type { Timing } from '../../src/openai/timing.js';
import type { End } from '../conversation/conversation.js';
import type { ChatDelta, ToolCallDelta } from './engine_port.js';

/** The fields of ChatCompletionChunk that the page reads; the server may be older or newer. */
export interface ChatChunk {
  readonly choices: readonly {
    readonly delta: {
      readonly content?: string | null;
      readonly reasoning_content?: string | null;
      readonly tool_calls?: readonly ToolCallDelta[] | null;
    };
    readonly finish_reason: string | null;
  }[];
}

const ENDS: Readonly<Record<string, End>> = {
  stop: 'stop',
  length: 'length',
  tool_calls: 'tool_calls',
};

/** The deltas of a stream; the last has the figures, which are known at the end. */
export async function* deltas(
  chunks: AsyncIterable<ChatChunk>,
  timing: () => Timing | null | undefined,
): AsyncGenerator<ChatDelta, void, undefined> {
  for await (const { choices } of chunks) {
    const [choice] = choices;
    if (choice) yield deltaOf(choice);
  }
  const taken = timing();
  if (taken) yield { text: '', timing: taken };
}

function deltaOf({ delta, finish_reason }: ChatChunk['choices'][number]): ChatDelta {
  return {
    text: delta.content ?? '',
    ...(delta.reasoning_content && { reasoning: delta.reasoning_content }),
    ...(delta.tool_calls?.length && { calls: delta.tool_calls }),
    ...(finish_reason && { finish: ENDS[finish_reason] ?? 'stop' }),
  };
}
