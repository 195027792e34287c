/**
 * Every product, in every format, by GET and POST: configured as docs/service.md says, it draws members that carry traffic.
 */
import { expect, test } from 'vitest';
import { FORMATS, METHODS, PRODUCTS } from '../../src/service/operations.ts';
import { exitThrough } from '../support/exit-through.ts';
import { openTestSandbox, sourceLine, startNoria } from '../support/noria.ts';

const CASES = PRODUCTS.flatMap((product, index) =>
  FORMATS.map((format) => {
    const name = `${product.replaceAll('-', '_')}_${format}`;
    return { product, format, name, id: `20260101${index}${FORMATS.indexOf(format)}` };
  }),
);

test.each(METHODS)(
  'products: each draws members that carry traffic, in every format, by %s',
  async (method) => {
    const sandbox = await openTestSandbox({
      instances: CASES.map(({ product, id }) => ({ product, id, members: 6 })),
    });
    const noria = await startNoria({
      sources: CASES.map(({ product, format, name, id }) =>
        sourceLine(sandbox, name, product, `format: ${format}, size: 2`, id),
      ),
      // On a busy machine, a first draw may fail; the limits leave time for another one.
      more: `service: { method: ${method} }\ndial: { waitForMember: 60s, deadline: 60s }`,
    });
    expect(CASES.length).toBe(24);
    const exits = await Promise.all(
      CASES.map(async ({ name }) => [name, await exitThrough(noria.proxy, name, `${sandbox.targetUrl}/ip`)]),
    );
    for (const [name, exit] of exits) expect(exit, name).toMatch(/^200 127\.\d+\.\d+\.\d+$/);
    expect(new Set(exits.map(([, exit]) => exit)).size, 'each by a member of its own source').toBe(
      CASES.length,
    );
    expect(sandbox.strangers()).toEqual([]);
  },
);
