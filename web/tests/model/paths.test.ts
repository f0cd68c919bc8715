/** URLs of models from user input, and paths that must not leave the folder. */

import { describe, expect, test } from 'vitest';
import { ArtifactError, DownloadError } from '../../src/errors.js';
import { fileUrl, modelUrl } from '../../src/model/paths.js';

describe('the address of a model', () => {
  test.each([
    ['https://example.org/a/model', 'https://example.org/a/model/', 'mlcc.json'],
    ['https://example.org/a/model/', 'https://example.org/a/model/', 'mlcc.json'],
    ['https://example.org/a/model/mlcc.json', 'https://example.org/a/model/', 'mlcc.json'],
    ['https://example.org/a/mlcc.f32.json#x', 'https://example.org/a/', 'mlcc.f32.json'],
    ['https://example.org/model?token=1', 'https://example.org/model/?token=1', 'mlcc.json'],
    ['https://example.org', 'https://example.org/', 'mlcc.json'],
    ['models/demo', 'http://localhost:1/page/models/demo/', 'mlcc.json'],
    ['https://example.org/100%-mine', 'https://example.org/100%-mine/', 'mlcc.json'],
    ['https://example.org/100%25.json', 'https://example.org/', '100%.json'],
    ['../demo/', 'http://localhost:1/demo/', 'mlcc.json'],
  ])('%s', (given, folder, manifest) => {
    const found = modelUrl(given, 'http://localhost:1/page/index.html');
    expect(found.folder.href).toBe(folder);
    expect(found.manifest).toBe(manifest);
  });

  test.each(['file:///model/', 'javascript:alert(1)', 'data:,x', 'blob:x', 'https://h/100%.json'])(
    'not %s',
    (given) => {
      expect(() => modelUrl(given, 'http://localhost:1/')).toThrow(DownloadError);
    },
  );

  test('a relative one needs a page', () => {
    expect(() => modelUrl('models/demo')).toThrow(DownloadError);
  });
});

describe('a path in the folder', () => {
  const folder = new URL('https://example.org/model/?token=1');

  test.each([
    ['weights-00001-of-00002.safetensors', 'weights-00001-of-00002.safetensors'],
    ['templates/tool use.jinja', 'templates/tool%20use.jinja'],
    ['a%2e.json', 'a%252e.json'],
    ['a#b', 'a%23b'],
  ])('%s', (path, relative) => {
    expect(fileUrl(folder, path)).toBe(`https://example.org/model/${relative}?token=1`);
  });

  test.each([
    '',
    '/etc/passwd',
    '../other/mlcc.json',
    'a/../../b',
    './a',
    'a//b',
    'a/',
    'https://example.com/a',
    'C:\\a',
    '..\\a',
    'a?b',
    'a\nb',
    '\0',
  ])('not %j', (path) => {
    expect(() => fileUrl(folder, path)).toThrow(ArtifactError);
  });
});
