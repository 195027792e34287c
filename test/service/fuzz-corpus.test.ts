import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { runsOf } from '../support/properties.ts';
import { GOLDEN, goldenBody } from './golden.ts';
import { readEveryWay } from './validity.ts';

const FOLDER = new URL('../fixtures/service/fuzz/', import.meta.url);
const CORPUS = readdirSync(FOLDER);

test('fuzz corpus: it exists, and part of it is understood', () => {
  expect(CORPUS.length).toBeGreaterThan(30);
  const understood = CORPUS.filter((file) => readEveryWay(readFileSync(new URL(file, FOLDER))) > 0);
  expect(understood.length).toBeGreaterThan(10);
  expect(understood.length).toBeLessThan(CORPUS.length);
});

test.each(CORPUS)('fuzz corpus: %s is a valid answer or a fault of the service in every format', (file) => {
  readEveryWay(readFileSync(new URL(file, FOLDER)));
});

test('fuzz corpus: truncated and altered golden answers are valid answers or faults of the service', () => {
  expect(GOLDEN.draws.length).toBeGreaterThan(24);
  const sparse = 10 / runsOf(10);
  for (const [index, { file }] of GOLDEN.draws.entries()) {
    const body = goldenBody(file);
    for (let cut = index % 7; cut < body.length; cut += 59 * sparse) readEveryWay(body.subarray(0, cut));
    for (let at = index % 11; at < body.length; at += 71 * sparse) {
      const changed = Buffer.from(body);
      changed.writeUInt8((body.readUInt8(at) + 1 + index) % 256, at);
      readEveryWay(changed);
    }
  }
});
