// The dashboard in a real Chromium, on a whole noria with a sandbox. States that would be difficult to reach (a token,
// an admin server that stops) are tested with an admin server alone.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { AxeResults } from 'axe-core';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { openAdmin } from '../../src/admin/server.ts';
import { systemClock } from '../../src/core/clock.ts';
import { Secret } from '../../src/core/secret.ts';
import { fakeBackend, SOURCE } from '../admin/fake-backend.ts';
import { adminOptions } from '../admin/open-test-admin.ts';
import { launchBrowser, visit } from '../support/browser.ts';
import { freePort } from '../support/free-port.ts';
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

async function openPlainAdmin(
  options: { port?: number; token?: string; sources?: (typeof SOURCE)[]; drawnBy?: string } = {},
) {
  const { port = 0, token, sources, drawnBy } = options;
  const backend = fakeBackend(
    sources === undefined ? {} : { sources },
    drawnBy === undefined ? {} : { drawnBy },
  );
  const admin = await openAdmin(
    adminOptions({
      port,
      backend,
      clock: systemClock,
      ...(token === undefined ? {} : { token: new Secret(token) }),
    }),
  );
  onTestFinished(() => admin.close());
  return { ...admin, commands: backend.commands, url: `http://127.0.0.1:${admin.port}/` };
}

const connection = (page: Page) => page.locator('#connection');
const buckets = (page: Page) => page.locator('.bucket[role=button]');
const untilLive = (page: Page) =>
  connection(page)
    .filter({ hasText: /^live$/ })
    .waitFor();

/** The accessibility problems that axe-core finds, one per line. */
async function findAccessibilityProblems(page: Page): Promise<string[]> {
  await page.evaluate(AXE);
  const { violations } = (await page.evaluate('axe.run()')) as AxeResults;
  return violations.flatMap(({ id, help, nodes }) => nodes.map(({ html }) => `${id}: ${help}: ${html}`));
}

describe.skipIf(CHROMIUM === undefined)('in a browser', () => {
  beforeAll(async () => {
    browser = await launchBrowser();
  });
  afterAll(() => browser.close());

  test('dashboard: shows readiness and one bucket per member, and loads nothing from elsewhere', async () => {
    const noria = await startBusyNoria();
    const { page, requested } = await visit(browser, noria.admin);
    await page.getByRole('heading', { name: `noria works: ${SIZE} members are usable.` }).waitFor();
    await buckets(page)
      .nth(SIZE - 1)
      .waitFor();
    const ids = noria.control.members().map(({ id }) => id);
    const names = await buckets(page).evaluateAll((all) => all.map((one) => one.getAttribute('aria-label')));
    expect(names.map((name) => name?.split(' ')[0]).sort()).toEqual(ids.sort());
    expect(await page.title()).toBe(`noria: ${SIZE} usable`);
    await page.locator('.chart canvas').nth(5).waitFor({ state: 'attached' });
    expect(await page.locator('#copies code').allTextContents()).toEqual([
      `http://${noria.proxy}`,
      `curl -x http://${noria.proxy} https://example.com/`,
    ]);
    const docs = await page.getByRole('link', { name: 'Documentation' }).getAttribute('href');
    expect((await fetch(`${noria.admin}${docs}`)).status).toBe(200);
    expect(requested.filter((url) => !url.startsWith(`${noria.admin}/`))).toEqual([]);
  });

  test('dashboard: an eviction needs confirmation and frees the slot at once', async () => {
    const noria = await startBusyNoria();
    const { page } = await visit(browser, noria.admin);
    await buckets(page).nth(2).click();
    const id = (await page.locator('#member-card h3').textContent()) ?? '';
    expect(noria.control.members().map((member) => member.id)).toContain(id);
    await page.getByRole('button', { name: `Evict ${id}` }).click();
    const dialog = page.getByRole('dialog', { name: `Evict ${id}?` });
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    expect(noria.control.members().map((member) => member.id)).toContain(id);
    await page.getByRole('button', { name: `Evict ${id}` }).click();
    await dialog.getByRole('button', { name: 'Evict' }).click();
    await page.getByText(`${id} was evicted.`, { exact: false }).waitFor();
    await page.locator(`.bucket[aria-label^="${id} "]`).waitFor({ state: 'detached' });
    expect(noria.control.members().map((member) => member.id)).not.toContain(id);
  });

  test('dashboard: arrow keys move along the wheel, Enter selects a member, Escape clears the selection', async () => {
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
    expect(await page.locator('#member-card h3').textContent()).toBe(last);
    await page.keyboard.press('Escape');
    expect(await page.locator('.bucket[aria-pressed=true]').count()).toBe(0);
  });

  test('dashboard: in a fleet, the card of a member names the noria that drew it', async () => {
    const { url } = await openPlainAdmin({ drawnBy: 'scraper-2' });
    const { page } = await visit(browser, url);
    await buckets(page).first().focus();
    await page.keyboard.press('Enter');
    const drawnBy = page
      .locator('#member-card dt', { hasText: 'drawn by' })
      .locator('xpath=following-sibling::dd');
    expect(await drawnBy.textContent()).toBe('scraper-2');
  });

  test('dashboard: the card of sites shows exits, spacing and draws', async () => {
    const { url } = await openPlainAdmin();
    const { page } = await visit(browser, url);
    const row = page.locator('#sites tr');
    await row.waitFor();
    expect(await row.locator('th, td').allTextContents()).toEqual([
      ...['shop.example', '40', '0', '3', '8 s', 'none', '2'],
    ]);
    expect(await findAccessibilityProblems(page)).toEqual([]);
  });

  test('dashboard: a halted source is shown with its reason, advice and a Resume button', async () => {
    const sandbox = await openTestSandbox({ instances: [{ product: 'short-classic' }] });
    const { id, baseUrl } = sandbox.instance('short-classic');
    const noria = await startNoria({
      sources: [
        `  - { name: city, product: short-classic, baseUrl: "${baseUrl}", instance: "${id}", password: "not-this-one" }`,
      ],
    });
    const { page } = await visit(browser, noria.admin);
    await page.getByRole('heading', { name: 'noria cannot serve clients.' }).waitFor();
    const [source] = noria.control.status().sources;
    expect(source?.state).toBe('halted');
    const card = page.locator('.source');
    await card.getByText('halted', { exact: true }).waitFor();
    await card.getByText(source?.advice ?? 'no advice').waitFor();
    expect(await page.getByText(source?.advice ?? 'no advice').count(), 'the advice is there once').toBe(1);
    expect(await page.locator('#problems a').getAttribute('href')).toBe('#source-city');
    expect(await card.getByRole('button', { name: 'Resume city' }).isVisible()).toBe(true);
    expect(await card.getByRole('button', { name: 'Pause city' }).isVisible()).toBe(false);
    await card.getByText('The service says “akey错误”.').waitFor();
    await card.getByText(/^This happened 1 ×, last at/).waitFor();
    expect(await page.locator('#failures-panel').isVisible()).toBe(false);
    expect(await findAccessibilityProblems(page)).toEqual([]);
  });

  test('dashboard: shows a lost connection and reconnects', async () => {
    const before = await openPlainAdmin({ port: await freePort() });
    // The browser logs refused connections itself; the page cannot prevent that.
    const { page } = await visit(browser, before.url, { mayFail: true });
    await untilLive(page);
    await before.close();
    await page.getByRole('heading', { name: 'noria does not answer' }).waitFor();
    expect(await page.title()).toBe('✕ noria does not answer');
    await page.getByText(/disconnected for .*, reconnecting/).waitFor();
    await page.getByRole('status').filter({ hasText: 'Connection to noria lost.' }).waitFor();
    await openPlainAdmin({ port: before.port });
    await untilLive(page);
    await page.getByRole('heading', { name: 'noria works: 20 members are usable.' }).waitFor();
  });

  test('dashboard: asks for the token, keeps it for the tab, and never puts it into a URL', async () => {
    const { url } = await openPlainAdmin({ token: 'river-stone' });
    const { page, requested, errors } = await visit(browser, url, { mayFail: true });
    const dialog = page.getByRole('dialog', { name: 'Token required' });
    await dialog.getByLabel('Token').fill('wrong-stone');
    await dialog.getByRole('button').click();
    await dialog.getByText('Wrong token.', { exact: false }).waitFor();
    expect(await findAccessibilityProblems(page)).toEqual([]);
    await dialog.getByLabel('Token').fill('river-stone');
    await page.keyboard.press('Enter');
    await untilLive(page);
    await page.reload();
    await untilLive(page);
    expect(requested.filter((address) => address.includes('stone'))).toEqual([]);
    // The browser logs each 401 itself; any other error comes from the page.
    expect(errors.filter((error) => !error.includes('401'))).toEqual([]);
    await page.getByRole('button', { name: 'Forget the token' }).click();
    await dialog.waitFor();
  });

  test('dashboard: each button sends its request, destructive ones after confirmation', async () => {
    const { url, commands } = await openPlainAdmin();
    const { page, requested } = await visit(browser, url);
    // The page gets its sources and sessions one after the other. Both have buttons.
    for (const name of ['Draw now from city', 'Forget session abc']) {
      await page.getByRole('button', { name }).waitFor();
    }
    const buttons = [
      ['Draw now from city', undefined, 'refill city'],
      ['Pause city', 'Pause', 'pause city'],
      ['Rotate abc to another member with its next connection', undefined, 'rotate abc false'],
      ['Rotate now: move abc to another member and close its open tunnels', 'Rotate now', 'rotate abc true'],
      ['Forget session abc', 'Forget', 'forget abc'],
    ] as const;
    // Users of speech control press a button by saying the text on it, so the label must contain the text.
    const named = await page
      .locator('button[aria-label]')
      .evaluateAll((all) => all.map((one) => [one.textContent ?? '', one.getAttribute('aria-label') ?? '']));
    expect(named.length).toBeGreaterThan(5);
    for (const [word = '', label] of named) expect(label).toContain(word);
    for (const [button, confirmation, command] of buttons) {
      await page.getByRole('button', { name: button }).click();
      if (confirmation !== undefined) {
        expect(commands).not.toContain(command);
        await page.getByRole('dialog').getByRole('button', { name: confirmation }).click();
      }
      await until(command, () => commands.includes(command));
    }
    await page.getByRole('button', { name: '24 hours' }).click();
    await until('the history of 24 hours is requested', () =>
      requested.some((address) => address.endsWith('/api/history?span=24h')),
    );
    expect(await page.getByRole('button', { name: '24 hours' }).getAttribute('aria-pressed')).toBe('true');
  });

  test('dashboard: shows text from the service as text, never as markup', async () => {
    const message = '<img src=x onerror="document.title=1"><b>bold</b>';
    const { url } = await openPlainAdmin({
      sources: [{ ...SOURCE, state: 'backoff', code: '12003', message, advice: message, reason: message }],
    });
    const { page } = await visit(browser, url);
    await page.locator('.service-message').getByText(message).waitFor();
    expect(await page.locator('.source :is(img, b)').count()).toBe(0);
  });

  test('dashboard: has no accessibility problems in light and dark mode', async () => {
    const noria = await startBusyNoria();
    const { page } = await visit(browser, noria.admin);
    await buckets(page).first().focus();
    await page.locator('#member-card h3').waitFor();
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      expect(await findAccessibilityProblems(page), colorScheme).toEqual([]);
    }
  });

  test('dashboard: speaks Chinese to a Chinese browser, and the switch works by keyboard', async () => {
    const { url } = await openPlainAdmin({
      sources: [
        { ...SOURCE, code: '12001', message: 'akey错误', meaning: '12001: The key is wrong.', advice: 'x' },
      ],
    });
    const { page } = await visit(browser, url, { locale: 'zh-CN' });
    const language = () => page.locator('html').getAttribute('lang');
    await page.getByRole('heading', { name: 'noria 工作正常：20 个成员可用。' }).waitFor();
    await page.getByText('服务返回：“akey错误”').waitFor();
    await page.getByRole('button', { name: '删除会话 abc' }).waitFor();
    await buckets(page).first().click();
    await page.getByRole('button', { name: '剔除 m1' }).waitFor();
    expect(await language()).toBe('zh-CN');
    expect(await page.title()).toBe('noria：20 个可用');
    const texts = await page
      .locator('h1, h2, h3, button, th[scope=col], summary, legend, dt, a, .legend-note, [aria-label]')
      .evaluateAll((all) =>
        all.flatMap((one) => [one.textContent, one.getAttribute('aria-label'), one.title]),
      );
    const written = new Set(texts.map((text) => text?.trim() ?? '').filter((text) => /[a-z]/i.test(text)));
    const foreign = [...written].filter(
      (text) => !/\p{Script=Han}/u.test(text) || /[a-z]+ [a-z]+ [a-z]+/i.test(text),
    );
    // Only these texts may be the same in both languages: the name of the other language, names, and percentiles.
    expect(foreign.sort()).toEqual(['English', 'city', 'm1', 'noria', 'p50', 'p95']);
    expect(written.size).toBeGreaterThan(foreign.length + 5);
    expect(await page.getByRole('link', { name: '文档' }).getAttribute('href')).toBe('/docs/zh-CN/README.md');
    expect(await findAccessibilityProblems(page)).toEqual([]);

    const inEnglish = page.getByRole('heading', { name: 'noria works: 20 members are usable.' });
    await page.getByRole('button', { name: 'English' }).focus();
    await page.keyboard.press('Enter');
    await inEnglish.waitFor();
    expect(await language()).toBe('en');
    expect(await page.locator(':focus').textContent()).toBe('English');
    await page.reload();
    await inEnglish.waitFor();
    await page.getByRole('button', { name: '中文' }).focus();
    await page.keyboard.press('Space');
    await page.getByRole('heading', { name: '最近的失败' }).waitFor();
    expect(await page.getByRole('button', { name: '中文' }).getAttribute('aria-pressed')).toBe('true');
  });

  test('dashboard: fits any width from 360 px to 2,560 px', async () => {
    const { url } = await openPlainAdmin();
    const { page } = await visit(browser, url);
    await buckets(page).first().waitFor();
    for (const width of [360, 600, 900, 1_280, 1_900, 2_560]) {
      await page.setViewportSize({ width, height: 800 });
      const overflow = await page.evaluate('document.documentElement.scrollWidth - innerWidth');
      expect(overflow, `at ${width} px`).toBeLessThanOrEqual(0);
    }
  });
});
