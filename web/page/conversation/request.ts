/** Builds the request for an answer from the shown path of the conversation and the settings. */

import type { ChatRequest, RequestMessage, RequestPart } from '../engines/engine_port.js';
import { requestFields, type Settings, schemaOf, toolsOf } from '../settings/settings.js';
import { withAttachments } from './attachments.js';
import type { Attachment, Message } from './conversation.js';
import { isImage, isTextFile } from './images.js';
import { base64Of, isSound } from './sounds.js';

/** `more`: tools beside those of the settings. `continues`: the last message is an answer to continue. */
export function requestOf(
  messages: readonly Message[],
  settings: Settings,
  more: readonly unknown[] = [],
  continues = false,
): ChatRequest {
  const system = settings.system.trim();
  const schema = schemaOf(settings);
  const tools = [...(toolsOf(settings) ?? []), ...more];
  const history = messages.map(requestMessage);
  const last = history.at(-1);
  if (continues && last) history.splice(-1, 1, { ...last, prefix: true });
  return {
    messages: [...(system ? [{ role: 'system' as const, content: system }] : []), ...history],
    ...requestFields(settings),
    ...(schema && {
      response_format: { type: 'json_schema', json_schema: { name: 'answer', schema } },
    }),
    ...(tools.length > 0 && { tools }),
  };
}

/** Reasoning is not sent back: templates omit it. */
function requestMessage(message: Message): RequestMessage {
  const { role, content, attachments, toolCalls, toolCallId } = message;
  if (role === 'tool') return { role, content, tool_call_id: toolCallId ?? '' };
  if (role === 'user') return { role, content: questionContent(content, attachments) };
  if (!toolCalls?.length) return { role, content };
  const tool_calls = toolCalls.map(({ id, name, arguments: given }) => ({
    id,
    type: 'function' as const,
    function: { name, arguments: given },
  }));
  return { role, content, tool_calls };
}

/** A text, or parts if there are images or sounds: those first, as in most templates. */
function questionContent(
  content: string,
  attachments: readonly Attachment[] = [],
): string | readonly RequestPart[] {
  const images = attachments.filter(isImage);
  const text = withAttachments(content, attachments.filter(isTextFile));
  const sounds = attachments.filter(isSound);
  if (images.length + sounds.length === 0) return text;
  const parts: RequestPart[] = [
    ...images.map(({ url }) => ({ type: 'image_url' as const, image_url: { url } })),
    ...sounds.map((sound) => ({
      type: 'input_audio' as const,
      input_audio: { data: base64Of(sound), format: 'wav' as const },
    })),
  ];
  return text ? [...parts, { type: 'text', text }] : parts;
}
