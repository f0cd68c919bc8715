/**
 * The visitor's settings for answers, kept in localStorage. An empty field means the model's
 * default and is left out of the request. The API validates values; the bounds here only shape the
 * form's fields.
 */

import { storeText, type TextStore } from './storage.js';

export interface Settings {
  system: string;
  temperature: number | null;
  topP: number | null;
  topK: number | null;
  minP: number | null;
  repetitionPenalty: number | null;
  presencePenalty: number | null;
  frequencyPenalty: number | null;
  maxTokens: number | null;
  seed: number | null;
  /** A JSON schema that constrains answers, as typed; "" for none. */
  schema: string;
  /** Tools in OpenAI's format, a JSON array, as typed; "" for none. */
  tools: string;
}

/** A setting with multi-line text. */
export type TextKey = 'system' | 'schema' | 'tools';

const TEXTS: readonly TextKey[] = ['system', 'schema', 'tools'];

/** A numeric setting: its field in the request, and the accepted values. */
export interface NumberRow {
  key: Exclude<keyof Settings, TextKey>;
  field: string;
  label: string;
  hint: string;
  min: number;
  max: number;
  step: number;
}

export const NUMBERS: readonly NumberRow[] = [
  {
    key: 'temperature',
    field: 'temperature',
    label: 'Temperature',
    hint: '0 always takes the likeliest word; higher is freer.',
    min: 0,
    max: 2,
    step: 0.05,
  },
  {
    key: 'topP',
    field: 'top_p',
    label: 'Top p',
    hint: 'Choose only among this share of likely words.',
    min: 0,
    max: 1,
    step: 0.05,
  },
  {
    key: 'topK',
    field: 'top_k',
    label: 'Top k',
    hint: 'Choose only among this many likely words; 0 for all.',
    min: 0,
    max: 1_000_000,
    step: 1,
  },
  {
    key: 'minP',
    field: 'min_p',
    label: 'Min p',
    hint: 'Leave out words below this share of the likeliest.',
    min: 0,
    max: 1,
    step: 0.01,
  },
  {
    key: 'repetitionPenalty',
    field: 'repetition_penalty',
    label: 'Repetition penalty',
    hint: 'Above 1, earlier words are less likely.',
    min: 0.01,
    max: 10,
    step: 0.05,
  },
  {
    key: 'presencePenalty',
    field: 'presence_penalty',
    label: 'Presence penalty',
    hint: 'Above 0, new words are likelier.',
    min: -2,
    max: 2,
    step: 0.1,
  },
  {
    key: 'frequencyPenalty',
    field: 'frequency_penalty',
    label: 'Frequency penalty',
    hint: 'Above 0, frequent words are less likely.',
    min: -2,
    max: 2,
    step: 0.1,
  },
  {
    key: 'maxTokens',
    field: 'max_tokens',
    label: 'Longest answer',
    hint: 'In tokens; a token is about three quarters of a word.',
    min: 1,
    max: 1_000_000,
    step: 1,
  },
  {
    key: 'seed',
    field: 'seed',
    label: 'Seed',
    hint: 'The same seed gives the same answer again.',
    min: 0,
    max: Number.MAX_SAFE_INTEGER,
    step: 1,
  },
];

export const DEFAULTS: Readonly<Settings> = {
  system: '',
  temperature: null,
  topP: null,
  topK: null,
  minP: null,
  repetitionPenalty: null,
  presencePenalty: null,
  frequencyPenalty: null,
  maxTokens: null,
  seed: null,
  schema: '',
  tools: '',
};

const KEY = 'mlcc.settings.1';

/** The stored settings; invalid fields get their defaults. */
export function readSettings(store: TextStore | null): Settings {
  const settings: Settings = { ...DEFAULTS };
  const kept = parseObject(store?.getItem(KEY) ?? null);
  for (const key of TEXTS) {
    const text = kept[key];
    if (typeof text === 'string') settings[key] = text;
  }
  for (const row of NUMBERS) settings[row.key] = within(row, kept[row.key]);
  return settings;
}

export function saveSettings(store: TextStore | null, settings: Settings): void {
  storeText(store, KEY, JSON.stringify(settings));
}

/** The request fields of the numeric settings. */
export function requestFields(settings: Settings): Record<string, number> {
  const set = NUMBERS.flatMap((row) => {
    const value = settings[row.key];
    return value === null ? [] : [[row.field, value] as const];
  });
  return Object.fromEntries(set);
}

/** The schema that constrains answers; null if none is set or it is invalid. */
export function schemaOf(settings: Settings): object | null {
  const found = parse(settings.schema);
  return typeof found === 'object' && !Array.isArray(found) ? found : null;
}

/** The tools that the model may call, or null. */
export function toolsOf(settings: Settings): readonly unknown[] | null {
  const found = parse(settings.tools);
  return Array.isArray(found) && found.length > 0 ? found : null;
}

/** Why a text is invalid for its setting; "" if it is valid. */
export function faultOf(key: TextKey, settings: Settings): string {
  if (key === 'system' || settings[key].trim() === '') return '';
  if (key === 'schema') return schemaOf(settings) ? '' : 'Not used: this is no JSON object.';
  return toolsOf(settings) ? '' : 'Not used: this is no JSON array of tools.';
}

/** The value if it is a number that the row accepts, else null. */
export function within(row: NumberRow, value: unknown): number | null {
  if (typeof value !== 'number' || !Number.isFinite(value)) return null;
  if (value < row.min || value > row.max) return null;
  return row.step === 1 && !Number.isInteger(value) ? null : value;
}

function parseObject(text: string | null): Record<string, unknown> {
  const found = parse(text ?? '{}');
  return typeof found === 'object' ? { ...found } : {};
}

/** The parsed value; null for invalid JSON. */
function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
