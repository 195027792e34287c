/**
 * Playwright Test through noria: each context has a session, whose exit nobody else uses while the test runs.
 *
 *   import { expect, test } from './noria-playwright.js';
 *   test.use({ noriaProxy: 'http://me:x@localhost:8890' }); // a listener with users: Chromium sends credentials when asked
 *   test('shop', async ({ page, noria }) => {
 *     await page.goto('https://shop.example/');
 *     if (await page.getByText('Are you a robot?').isVisible()) await noria.banned();
 *   });
 */
import { randomUUID } from 'node:crypto';
import { test as base, expect } from '@playwright/test';

const DESK = 'http://noria.invalid';

export { expect };
export const test = base.extend({
  noriaProxy: ['http://me:x@localhost:8890', { option: true }],

  context: async ({ browser, contextOptions, noriaProxy }, use) => {
    const { host, username, password } = new URL(noriaProxy);
    const session = randomUUID().replaceAll('-', '');
    const proxy = {
      server: `http://${host}`,
      username: `${username}-session-${session}-exclusive`,
      password,
    };
    const context = await browser.newContext({ ...contextOptions, proxy });
    await use(context);
    await context.close();
  },

  /** What the test got and says: `state()` as `GET /`, and `banned(host)`, `ok(host)`, `rotate()`. */
  noria: async ({ context }, use) => {
    const tell = async (path, host) => {
      const query = host === undefined ? '' : `?host=${encodeURIComponent(host)}`;
      const answer = await context.request.post(`${DESK}${path}${query}`);
      if (!answer.ok())
        throw new Error(`noria answered ${path} with ${answer.status()}: ${await answer.text()}`);
    };
    await use({
      state: async () => (await context.request.get(`${DESK}/`)).json(),
      banned: (host) => tell('/banned', host),
      ok: (host) => tell('/ok', host),
      rotate: () => tell('/rotate'),
    });
  },
});
