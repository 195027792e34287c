// What an operator sees in a browser: a whole noria on a sandbox behind the page, and a real Chromium before it. States
// that cannot be had quickly (a token, an admin server that goes away) are shown by the admin server alone.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { AxeResults } from 'axe-core';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { openAdmin } from '../../src/admin/server.ts';
import { Secret } from '../../src/core/secret.ts';
import { fakeBackend, SOURCE } from '../admin/fake-backend.ts';
import { adminOptions } from '../admin/open-test-admin.ts';
import { launchBrowser, visit } from '../support/browser.ts';
import { openTestSandbox, sourceLine, startNoria, untilReady } from '../support/noria.ts';
import { CHROMIUM } from '../support/tools.ts';
import { until } from '../support/until.ts';

const AXE = readFileSync(fileURLToPath(import.meta.resolve('axe-core/axe.min.js')), 'utf8');
const SIZE = 6;

let browser: Browser;

async function startBusyNoria() {
  const sandbox = await openTestSandbox({
    instances: [{ product: 'short-classic', members: SIZE * 3, singlePullLimit: SIZE }],
  });
  const noria = await startNoria({
    sources: [sourceLine(sandbox, 'city', 'short-classic', `size: ${SIZE}, params: { count: ${SIZE} }`)],
  });
  await untilReady(noria, SIZE);
  return noria;
}

async function openShown(options: { port?: number; token?: string; sources?: (typeof SOURCE)[] } = {}) {
  const { port = 0, token, sources } = options;
  const watched = fakeBackend(sources === undefined ? {} : { sources });
  const admin = await openAdmin(
    adminOptions({
      port,
      backend: watched,
      ...(token === undefined ? {} : { token: new Secret(token) }),
    }),
  );
  onTestFinished(() => admin.close());
  return { ...admin, told: watched.told, url: `http://127.0.0.1:${admin.port}/` };
}

const contact = (page: Page) => page.locator('#contact');
const buckets = (page: Page) => page.locator('.bucket[role=button]');
const untilLive = (page: Page) =>
  contact(page)
    .filter({ hasText: /^live$/ })
    .waitFor();

/** What axe-core finds wrong, in a line each. */
async function findBarriers(page: Page): Promise<string[]> {
  await page.evaluate(AXE);
  const { violations } = (await page.evaluate('axe.run()')) as AxeResults;
  return violations.flatMap(({ id, help, nodes }) => nodes.map(({ html }) => `${id}: ${help}: ${html}`));
}

describe.skipIf(CHROMIUM === undefined)('in a browser', () => {
  beforeAll(async () => {
    browser = await launchBrowser();
  });
  afterAll(() => browser.close());

  test('dashboard: it says whether noria works, and shows each member in its bucket, from this address alone', async () => {
    const noria = await startBusyNoria();
    const { page, asked } = await visit(browser, noria.admin);
    await page.getByRole('heading', { name: `noria works: ${SIZE} members are usable.` }).waitFor();
    await buckets(page)
      .nth(SIZE - 1)
      .waitFor();
    const ids = noria.control.members().map(({ id }) => id);
    const names = await buckets(page).evaluateAll((all) => all.map((one) => one.getAttribute('aria-label')));
    expect(names.map((name) => name?.split(' ')[0]).sort()).toEqual(ids.sort());
    expect(await page.title()).toBe(`noria: ${SIZE} usable`);
    await page.locator('.chart canvas').nth(3).waitFor({ state: 'attached' });
    expect(asked.filter((url) => !url.startsWith(`${noria.admin}/`))).toEqual([]);
  });

  test("dashboard: an eviction is asked for twice, and the bucket is another member's at once", async () => {
    const noria = await startBusyNoria();
    const { page } = await visit(browser, noria.admin);
    await buckets(page).nth(2).click();
    const id = (await page.locator('#member h3').textContent()) ?? '';
    expect(noria.control.members().map((member) => member.id)).toContain(id);
    await page.getByRole('button', { name: `Evict ${id}` }).click();
    const dialog = page.getByRole('dialog', { name: `Evict ${id}?` });
    await dialog.getByRole('button', { name: 'Leave it' }).click();
    expect(noria.control.members().map((member) => member.id)).toContain(id);
    await page.getByRole('button', { name: `Evict ${id}` }).click();
    await dialog.getByRole('button', { name: 'Evict it' }).click();
    await page.getByText(`${id} was evicted.`, { exact: false }).waitFor();
    await page.locator(`.bucket[aria-label^="${id} "]`).waitFor({ state: 'detached' });
    expect(noria.control.members().map((member) => member.id)).not.toContain(id);
  });

  test('dashboard: the arrow keys go round the wheel, Enter keeps a member, Escape lets it go', async () => {
    const noria = await startBusyNoria();
    const { page } = await visit(browser, noria.admin);
    await buckets(page).first().focus();
    const at = async () => (await page.locator(':focus').getAttribute('aria-label'))?.split(' ')[0];
    const first = await at();
    await page.keyboard.press('ArrowLeft');
    const last = await at();
    expect(last).not.toBe(first);
    await page.keyboard.press('ArrowRight');
    expect(await at()).toBe(first);
    await page.keyboard.press('End');
    expect(await at()).toBe(last);
    await page.keyboard.press('Enter');
    expect(await page.locator('.bucket[aria-pressed=true]').count()).toBe(1);
    expect(await page.locator('#member h3').textContent()).toBe(last);
    await page.keyboard.press('Escape');
    expect(await page.locator('.bucket[aria-pressed=true]').count()).toBe(0);
  });

  test('dashboard: a halted source is told first, with the reason, the advice and the way out', async () => {
    const sandbox = await openTestSandbox({ instances: [{ product: 'short-classic' }] });
    const { id, baseUrl } = sandbox.instance('short-classic');
    const noria = await startNoria({
      sources: [
        `  - { name: city, product: short-classic, baseUrl: "${baseUrl}", instance: "${id}", password: "not-this-one" }`,
      ],
    });
    const { page } = await visit(browser, noria.admin);
    await page.getByRole('heading', { name: /^noria does not work: / }).waitFor();
    const [source] = noria.control.status().sources;
    expect(source?.state).toBe('halted');
    const card = page.locator('.source');
    await card.getByText('halted', { exact: true }).waitFor();
    await card.getByText(source?.advice ?? 'no advice').waitFor();
    expect(await card.getByRole('button', { name: 'Resume city' }).isVisible()).toBe(true);
    expect(await card.getByRole('button', { name: 'Pause city' }).isVisible()).toBe(false);
    await page.locator('.failure').first().waitFor();
    expect(await findBarriers(page)).toEqual([]);
  });

  test('dashboard: it says when it has lost contact, and comes back by itself', async () => {
    const before = await openShown();
    // Connections that are refused are told in the browser's own words, which is not the page's to prevent.
    const { page } = await visit(browser, before.url, { mayComplain: true });
    await untilLive(page);
    await before.close();
    await page.getByText(/no contact for .*, trying again/).waitFor();
    await page.getByRole('status').filter({ hasText: 'Contact with noria is lost.' }).waitFor();
    await openShown({ port: before.port });
    await untilLive(page);
    await page.getByRole('heading', { name: 'noria works: 20 members are usable.' }).waitFor();
  });

  test('dashboard: the token is asked for, kept for the tab, and never part of an address', async () => {
    const { url } = await openShown({ token: 'river-stone' });
    const { page, asked, complaints } = await visit(browser, url, { mayComplain: true });
    const dialog = page.getByRole('dialog', { name: 'This noria asks for its token' });
    await dialog.getByLabel('Token').fill('wrong-stone');
    await dialog.getByRole('button').click();
    await dialog.getByText('That was not the token of this noria.', { exact: false }).waitFor();
    expect(await findBarriers(page)).toEqual([]);
    await dialog.getByLabel('Token').fill('river-stone');
    await page.keyboard.press('Enter');
    await untilLive(page);
    await page.reload();
    await untilLive(page);
    expect(asked.filter((address) => address.includes('stone'))).toEqual([]);
    // The browser tells every 401 in its own words; anything else would be the page's.
    expect(complaints.filter((complaint) => !complaint.includes('401'))).toEqual([]);
    await page.getByRole('button', { name: 'Forget the token' }).click();
    await dialog.waitFor();
  });

  test('dashboard: every verb reaches noria, those that hurt only when they are meant', async () => {
    const { url, told } = await openShown();
    const { page, asked } = await visit(browser, url);
    const verbs = [
      ['Draw now from city', undefined, 'refill city'],
      ['Pause city', 'Pause it', 'pause city'],
      ['Move session abc to another member', undefined, 'rotate abc false'],
      ['Move session abc and end its open tunnels', 'Cut its tunnels', 'rotate abc true'],
      ['Forget session abc', 'Forget it', 'forget abc'],
    ] as const;
    for (const [button, meant, verb] of verbs) {
      await page.getByRole('button', { name: button }).click();
      if (meant !== undefined) {
        expect(told).not.toContain(verb);
        await page.getByRole('dialog').getByRole('button', { name: meant }).click();
      }
      await until(verb, () => told.includes(verb));
    }
    await page.getByRole('button', { name: '24 hours' }).click();
    await until('the day is asked for', () =>
      asked.some((address) => address.endsWith('/api/history?span=24h')),
    );
    expect(await page.getByRole('button', { name: '24 hours' }).getAttribute('aria-pressed')).toBe('true');
  });

  test('dashboard: what a source says is text, whatever it looks like', async () => {
    const message = '<img src=x onerror="document.title=1"><b>bold</b>';
    const { url } = await openShown({
      sources: [{ ...SOURCE, state: 'backoff', message, advice: message, reason: message }],
    });
    const { page } = await visit(browser, url);
    await page.locator('.said').getByText(message).waitFor();
    expect(await page.locator('.source :is(img, b)').count()).toBe(0);
  });

  test('dashboard: nothing bars anyone from it, by day and by night', async () => {
    const noria = await startBusyNoria();
    const { page } = await visit(browser, noria.admin);
    await buckets(page).first().focus();
    await page.locator('#member h3').waitFor();
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      expect(await findBarriers(page), colorScheme).toEqual([]);
    }
  });

  test('dashboard: it fits into any width from 360 px to 2,560 px', async () => {
    const { url } = await openShown();
    const { page } = await visit(browser, url);
    await buckets(page).first().waitFor();
    for (const width of [360, 600, 900, 1_280, 1_900, 2_560]) {
      await page.setViewportSize({ width, height: 800 });
      const overflow = await page.evaluate('document.documentElement.scrollWidth - innerWidth');
      expect(overflow, `at ${width} px`).toBeLessThanOrEqual(0);
    }
  });
});
