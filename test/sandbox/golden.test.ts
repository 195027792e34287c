/**
 * The sandbox's answers have the same shape as the hand-written golden answers, with which noria's client is tested. So a
 * misreading of the specification in only one of them fails a test.
 */
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { SANDBOX_PRODUCTS, type SandboxProduct } from '../../src/sandbox/operations.ts';
import { call, open, send } from './client.ts';

const golden = (name: string) => readFileSync(`test/fixtures/service/golden/${name}`, 'utf8');
const fileOf = (product: SandboxProduct, format: string) =>
  `0${SANDBOX_PRODUCTS.indexOf(product) + 1}-${product}.${format}`;

/** Opens a sandbox with one instance in the mode of its golden answers; those of operation 5 have no surplus. */
function openFor(product: SandboxProduct) {
  return open({
    instances: [{ product, accounting: product === 'residential-socks5' ? 'even' : 'centralized' }],
  });
}

/** Returns names and types in order; for a list, the common shape of its items. */
function shapeOf(value: unknown): unknown {
  if (Array.isArray(value)) {
    const shapes = new Set(value.map((item) => JSON.stringify(shapeOf(item))));
    expect(shapes.size, 'items of one shape').toBe(1);
    return [JSON.parse([...shapes].join())];
  }
  if (typeof value !== 'object' || value === null) return typeof value;
  return Object.entries(value).map(([name, inner]) => [name, shapeOf(inner)]);
}

/** Returns the names of the elements inside the root in order; of the entries, only those of one. */
function elementsOf(xml: string): readonly string[] {
  const tight = xml.replace(/>\s+</g, '><');
  const one = tight.replace(/(<proxy>.*?<\/proxy>)(?:<proxy>.*?<\/proxy>)+/s, '$1');
  const names = [...one.matchAll(/<(\/?\w+)>/g)].map(([, name = '']) => name);
  return names.slice(1, -1);
}

test.each(SANDBOX_PRODUCTS)(
  '%s: the golden JSON and the sandbox’s have the same names and types',
  async (product) => {
    const sandbox = await openFor(product);
    const { body } = await call(sandbox, product);
    expect(shapeOf(JSON.parse(body))).toEqual(shapeOf(JSON.parse(golden(fileOf(product, 'json')))));
  },
);

test.each(SANDBOX_PRODUCTS)(
  '%s: the golden XML and the sandbox’s have the same elements',
  async (product) => {
    const sandbox = await openFor(product);
    const params = product === 'short-pure' ? { type: '3' } : { type: '2', return_type: '2' };
    const { body } = await call(sandbox, product, params);
    expect(elementsOf(body)).toEqual(elementsOf(golden(fileOf(product, 'xml'))));
    expect(elementsOf(body).length).toBeGreaterThan(10);
  },
);

test.each(SANDBOX_PRODUCTS)(
  '%s: the golden Text and the sandbox’s have the same punctuation',
  async (product) => {
    const sandbox = await open();
    const { body } = await call(sandbox, product, {
      type: '1',
      return_type: '1',
      ...(product === 'free' && { dalu: '0' }),
    });
    const punctuation = (line: string) => line.replace(/[^[\]:@#]+/g, 'x');
    const shapes = (text: string) => new Set(text.split('\r\n').filter(Boolean).map(punctuation));
    expect(shapes(body)).toEqual(shapes(golden(fileOf(product, 'txt'))));
  },
);

test("operations 9 and 10: the sandbox's answers have the names and types of the golden ones", async () => {
  const sandbox = await open();
  const { id, akey } = sandbox.instance('exclusive');
  const areas = await send(`${sandbox.url}/ExclusiveProxy/GetAddibleServerList/`, { api: id, akey });
  expect(shapeOf(JSON.parse(areas.body))).toEqual(shapeOf(JSON.parse(golden('09-areas.json'))));
  const { username, key: password } = sandbox.account;
  const instances = await send(`${sandbox.url}/ExclusiveProxy/GetInstanceList/`, { username, password });
  expect(shapeOf(JSON.parse(instances.body))).toEqual(shapeOf(JSON.parse(golden('10-instances.json'))));
});

test("refusals: the sandbox's answer has the names and types of the golden one", async () => {
  const sandbox = await open();
  const { body } = await call(sandbox, 'short-classic', { adr: '火星' });
  expect(JSON.parse(body)).toEqual(JSON.parse(golden('error-12009.json')));
});
