/**
 * Every product, in every format, by GET and POST: configured as docs/service.md says, it draws members that carry traffic.
 */
import { request } from 'node:http';
import { expect, test } from 'vitest';
import { FORMATS, METHODS, PRODUCTS } from '../../src/service/operations.ts';
import { openTestSandbox, sourceLine, startNoria, untilReady } from '../support/noria.ts';

function exitSeen(proxy: string, url: string): Promise<string> {
  const [host, port] = proxy.split(':');
  return new Promise((resolve, reject) => {
    const asked = request(
      { host, port, path: url, headers: { host: new URL(url).host }, agent: false },
      async (answer) => {
        let body = '';
        for await (const chunk of answer) body += chunk;
        resolve(`${answer.statusCode} ${body.trim()}`);
      },
    );
    asked.on('error', reject);
    asked.end();
  });
}

for (const product of PRODUCTS) {
  test(`products: ${product} draws members that carry traffic, in every format, by GET and POST`, async () => {
    for (const format of FORMATS) {
      for (const method of METHODS) {
        const sandbox = await openTestSandbox({ instances: [{ product, members: 6 }] });
        const noria = await startNoria({
          sources: [sourceLine(sandbox, 'one', product, `format: ${format}, size: 2`)],
          more: `service: { method: ${method} }`,
        });
        await untilReady(noria, 1);
        const seen = await exitSeen(noria.proxy, `${sandbox.targetUrl}/ip`);
        expect(seen, `${format} by ${method}`).toMatch(/^200 127\.\d+\.\d+\.\d+$/);
        expect(sandbox.strangers()).toEqual([]);
        await noria.close();
        await sandbox.close();
      }
    }
  });
}
