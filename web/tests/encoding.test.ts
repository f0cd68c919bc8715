/** The requests of an engine to an encoder, recorded by a fake fetch. */

import { expect, test } from 'vitest';
import type { EmbeddingList, EmbeddingRequest } from '../src/api.js';
import { ApiError } from '../src/errors.js';
import { Encoding } from '../src/openai/encoding.js';

test('requests its address, and returns the whole answer', async () => {
  const asked: unknown[] = [];
  const answer = { object: 'list', data: [], model: 'm', usage: {} };
  const encoding = new Encoding<EmbeddingRequest, EmbeddingList>(
    '/v1/embeddings',
    async (...given) => {
      asked.push(given);
      return Response.json(answer);
    },
  );
  const { signal } = new AbortController();
  expect(await encoding.create({ input: ['a', 'b'] }, { signal })).toEqual(answer);
  expect(asked).toEqual([['/v1/embeddings', { input: ['a', 'b'] }, signal]]);
});

test('a refusal is an ApiError with its code', async () => {
  const body = { error: { message: 'it writes', type: 'x', param: 'model', code: 'no_encoder' } };
  const encoding = new Encoding('/v1/rerank', async () => Response.json(body, { status: 400 }));
  const refused = encoding.create({ query: 'a', documents: ['b'] });
  await expect(refused).rejects.toBeInstanceOf(ApiError);
  await expect(refused).rejects.toMatchObject({ code: 'no_encoder', message: 'it writes' });
});
