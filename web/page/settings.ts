/**
 * What the visitor may set for answers. Kept in localStorage, for every visit. An empty field means
 * the model's own default and is left out of the request. Which values are allowed is the API's to
 * say; the bounds here only shape the form's fields.
 */

import { keep, type TextStore } from './storage.js';

export interface Settings {
  system: string;
  temperature: number | null;
  topP: number | null;
  maxTokens: number | null;
  seed: number | null;
}

/** A number of the form: where it goes in the request, and what its field accepts. */
export interface NumberRow {
  key: Exclude<keyof Settings, 'system'>;
  field: 'temperature' | 'top_p' | 'max_tokens' | 'seed';
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
  maxTokens: null,
  seed: null,
};

const KEY = 'mlcc.settings.1';

/** What was kept, field by field; what is not sound is the default again. */
export function readSettings(store: TextStore | null): Settings {
  const settings: Settings = { ...DEFAULTS };
  const kept = parseObject(store?.getItem(KEY) ?? null);
  if (typeof kept['system'] === 'string') settings.system = kept['system'];
  for (const row of NUMBERS) settings[row.key] = within(row, kept[row.key]);
  return settings;
}

export function keepSettings(store: TextStore | null, settings: Settings): void {
  keep(store, KEY, JSON.stringify(settings));
}

/** The fields of a request for what is set. */
export function requestFields(settings: Settings): Partial<Record<NumberRow['field'], number>> {
  const set = NUMBERS.flatMap((row) => {
    const value = settings[row.key];
    return value === null ? [] : [[row.field, value] as const];
  });
  return Object.fromEntries(set);
}

/** The number if it is one that the row accepts, else null. */
export function within(row: NumberRow, value: unknown): number | null {
  if (typeof value !== 'number' || !Number.isFinite(value)) return null;
  if (value < row.min || value > row.max) return null;
  return row.step === 1 && !Number.isInteger(value) ? null : value;
}

function parseObject(text: string | null): Record<string, unknown> {
  try {
    const found: unknown = JSON.parse(text ?? '{}');
    return typeof found === 'object' && found !== null ? { ...found } : {};
  } catch {
    return {};
  }
}
