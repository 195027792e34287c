/**
 * Takes the screenshots of the dashboard, docs/dashboard.png and docs/dashboard-dark.png: noria on a sandbox with some dead and
 * slow members, after a quarter of an hour of light traffic, so that the charts are full.
 *
 * `node scripts/screenshot.ts [MINUTES]` uses the Chromium at /usr/bin/chromium, or at the path in CHROMIUM.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Browser, chromium } from 'playwright-core';
import { ProxyAgent, request } from 'undici';
import { parseConfig } from '../src/config/load.ts';
import { createLog } from '../src/core/log.ts';
import { Ownership } from '../src/core/ownership.ts';
import { startDaemon } from '../src/daemon/daemon.ts';
import { openSandbox, type Sandbox } from '../src/sandbox/sandbox.ts';

const MINUTES = Number(process.argv[2] ?? 15.5);
const PICTURES = [
  ['light', 'docs/dashboard.png'],
  ['dark', 'docs/dashboard-dark.png'],
] as const;
/** High enough to include the charts. */
const VIEW = { width: 1_440, height: 1_700 } as const;
const SESSIONS = ['checkout', 'prices', 'search', 'reviews'];
/** Between two requests: the minimum, and the most that is added to it. */
const SPACING_MS = [60, 380] as const;
const WAVE_MS = 240_000;

const SOURCES = [
  { name: 'city', product: 'short-classic', size: 12, lifetimeMs: [60_000, 180_000] },
  { name: 'harbour', product: 'short-socks5', size: 10, lifetimeMs: [60_000, 180_000] },
  { name: 'hills', product: 'long-residential', size: 8, lifetimeMs: [400_000, 900_000] },
] as const;

async function main(): Promise<void> {
  const owner = new Ownership();
  try {
    const sandbox = await owner.open(
      'sandbox',
      openSandbox({
        instances: SOURCES.map(({ product, size, lifetimeMs }) => ({
          product,
          lifetimeMs,
          members: size * 3,
          dead: 0.06,
          slow: 0.05,
          slowMs: 900,
        })),
      }),
    );
    const log = createLog({ level: 'error', format: 'json' });
    const daemon = await owner.open('daemon', startDaemon({ config: configFor(sandbox), log }));
    const { listeners, admin } = daemon.addresses;
    const stopLoad = new AbortController();
    const load = keepBusy(listeners[0] ?? '', sandbox.targetUrl, stopLoad.signal);
    await sleep(MINUTES * 60_000);
    const browser = await owner.open(
      'browser',
      chromium.launch({ executablePath: chromiumPath(), args: ['--no-sandbox'] }),
    );
    for (const [colorScheme, path] of PICTURES)
      await photograph(browser, `http://${admin}/`, { colorScheme, path });
    stopLoad.abort();
    await load;
  } finally {
    await owner.close();
  }
}

function configFor(sandbox: Sandbox) {
  const sources = SOURCES.map(({ name, product, size }) => {
    const { id, password } = sandbox.instance(product);
    const budget = name === 'city' ? ', dailyBudget: 2000' : '';
    return `  - { name: ${name}, product: ${product}, instance: "${id}", password: "${password}", size: ${size}${budget} }`;
  });
  return parseConfig(
    `
service: { baseUrl: "${sandbox.url}" }
sources:
${sources.join('\n')}
pool: { fill: size, allowPrivateAddresses: true }
listeners: [{ address: "127.0.0.1:0", denyTargets: [] }]
admin: { address: "127.0.0.1:0" }
state: off
`,
    'screenshot.yaml',
    { env: {} },
  );
}

/** Sends requests of all kinds at a rate that rises and falls slowly. */
async function keepBusy(proxy: string, target: string, signal: AbortSignal): Promise<void> {
  const users = [
    ...SESSIONS.map((session) => `crawl-session-${session}`),
    'crawl',
    'crawl',
    'crawl-source-hills',
  ];
  const agents = users.map((user) => {
    const token = `Basic ${Buffer.from(`${user}:x`).toString('base64')}`;
    return new ProxyAgent({ uri: `http://${proxy}`, token, proxyTunnel: true });
  });
  const startAt = performance.now();
  let requestCount = 0;
  const inFlight = new Set<Promise<void>>();
  while (!signal.aborted) {
    const wave = (1 + Math.sin(((performance.now() - startAt) / WAVE_MS) * 2 * Math.PI)) / 2;
    requestCount += 1;
    const url = requestCount % 97 === 0 ? 'http://gone.invalid/' : `${target}${pathOf(requestCount)}`;
    const dispatcher = agents[requestCount % agents.length];
    const one = request(url, dispatcher === undefined ? {} : { dispatcher, reset: true })
      .then(({ body }) => body.dump({ limit: 1_000_000 }))
      .catch(() => {}) // ignored: some requests are meant to fail
      .finally(() => inFlight.delete(one));
    inFlight.add(one);
    await sleep(SPACING_MS[0] + SPACING_MS[1] * (1 - wave));
  }
  await Promise.all(inFlight);
}

/** Downloads, and every fourth time a slow response, which keeps its tunnel open. */
function pathOf(requestCount: number): string {
  return requestCount % 4 === 0
    ? `/delay/${(requestCount * 37) % 9_000}`
    : `/bytes/${(requestCount * 7_919) % 400_000}`;
}

async function photograph(
  browser: Browser,
  url: string,
  { colorScheme, path }: { readonly colorScheme: 'light' | 'dark'; readonly path: string },
): Promise<void> {
  const page = await browser.newPage({ viewport: VIEW, colorScheme, deviceScaleFactor: 1.5 });
  await page.goto(url);
  await page
    .locator('#connection')
    .filter({ hasText: /^live$/ })
    .waitFor();
  await page.locator('.chart canvas').nth(3).waitFor();
  await page.locator('.bucket[role=button]').nth(3).click();
  await page.mouse.move(0, 0);
  await sleep(3_000); // for the animations to end and the charts to load
  await page.screenshot({ path });
  await page.close();
}

function chromiumPath(): string {
  return process.env['CHROMIUM'] ?? '/usr/bin/chromium';
}

await main();
