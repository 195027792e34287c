import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { parse } from 'yaml';
import { z } from 'zod';
import { FIELDS, schemaJson } from '../../src/config/fields.ts';

/** Validates as an editor does: by the types of YAML values. */
function accepts(text: string): boolean {
  return z.fromJSONSchema(schemaJson()).safeParse(parse(text)).success;
}

test('JSON Schema: accepts config.example.yaml', () => {
  expect(accepts(readFileSync('config.example.yaml', 'utf8'))).toBe(true);
});

test.each([
  'pool: { size: 5, idleAfter: 0s, allowPrivateAddresses: true }',
  'pool: { size: "${SIZE}", allowPrivateAddresses: "${PRIVATE:-false}" }',
  'sources: [{ name: city, product: free, instance: 12345678, akey: 0123456789012345, params: { adr: [a, b], dalu: 0 } }]',
  'sources: [{ name: city, product: free, instance: "1", password: 12345678, upstream: { auth: { username: u } } }]',
  'health: { check: { url: "http://example.com/" } }',
  'admin: off',
  'workers: 4',
])('JSON Schema: accepts %s', (text) => {
  expect(accepts(text)).toBe(true);
});

test.each([
  'pool: { szie: 5 }',
  'pool: { size: 0 }',
  'pool: { idleAfter: 5 minutes }',
  'rotation: { strategy: fastst }',
  'sources: [{ name: city, product: nix, instance: "1" }]',
  'sources: [{ product: free, instance: "1" }]',
  'health: { check: on }',
  'workers: many',
  'listeners: []',
])('JSON Schema: rejects %s', (text) => {
  expect(accepts(text)).toBe(false);
});

test('JSON Schema: every key has its line of meaning and a typed default', () => {
  const described = descriptionsOf(schemaJson(), '');
  for (const { path, about } of FIELDS) expect(described.get(path), path).toBe(about);
  const json = JSON.stringify(schemaJson());
  expect(json).toContain('"default":20');
  expect(json).toContain('"default":false');
  expect(json).toContain('"default":"5m"');
});

function descriptionsOf(
  schema: unknown,
  path: string,
  found = new Map<string, unknown>(),
): Map<string, unknown> {
  if (!isMap(schema)) return found;
  if (typeof schema['description'] === 'string' && path !== '') found.set(path, schema['description']);
  for (const option of [schema['anyOf']].flat()) descriptionsOf(option, path, found);
  descriptionsOf(schema['items'], `${path}[]`, found);
  if (!isMap(schema['properties'])) return found;
  for (const [name, inner] of Object.entries(schema['properties'])) {
    descriptionsOf(inner, path === '' ? name : `${path}.${name}`, found);
  }
  return found;
}

function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
