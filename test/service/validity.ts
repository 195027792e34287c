import { isIP } from 'node:net';
import { expect } from 'vitest';
import { NoriaError } from '../../src/core/faults.ts';
import { canonicalIp } from '../../src/core/host-port.ts';
import { type DecodedDraw, decodeDraw, MAX_ENTRIES } from '../../src/service/decode.ts';
import { FORMATS, type Format, type Product } from '../../src/service/operations.ts';
import { reading } from './reading.ts';

const LAYOUT = '{ip}:{port},{adr}';

/**
 * Three products that are decoded in different ways: the first has lifetimes of -1 and exit IPs, the second has special fields and
 * counters, and the third has a special text line.
 */
const DIFFERENT: readonly Product[] = ['long-residential', 'short-pure', 'free'];

/** All products, formats and layouts to read an answer with. */
const READINGS: readonly { product: Product; format: Format; textLayout?: string }[] = DIFFERENT.flatMap(
  (product) => [
    ...FORMATS.map((format) => ({ product, format })),
    { product, format: 'text', textLayout: LAYOUT },
  ],
);

/**
 * Expects that `body`, decoded in each way of `READINGS`, is a valid answer or a fault of the service. Returns the number of
 * valid answers.
 */
export function readEveryWay(body: Uint8Array): number {
  let answers = 0;
  for (const how of READINGS) {
    try {
      expectValid(decodeDraw(body, reading(how)));
      answers += 1;
    } catch (error) {
      if (!(error instanceof NoriaError)) throw error;
      expect(['service-protocol', 'service-blocked']).toContain(error.code);
      expectPrintable(error.message, 400);
    }
  }
  return answers;
}

/** Checks everything that refill and pool rely on. */
export function expectValid({ code, message, entries, dropped, quota }: DecodedDraw): void {
  expect(code).toMatch(/^[\w.-]{1,16}$/);
  expectPrintable(message, 501);
  expect(entries.length).toBeLessThanOrEqual(MAX_ENTRIES);
  if (code !== '10001') expect({ entries, dropped }).toEqual({ entries: [], dropped: {} });
  for (const { host, port, protocol, lifetimeMs, exitIp, location, onlineMs } of entries) {
    expect(isIP(host)).toBeGreaterThan(0);
    expect(canonicalIp(host)).toBe(host);
    expect(Number.isInteger(port) && port >= 1 && port <= 65_535).toBe(true);
    if (protocol !== undefined) expect(['http', 'socks4', 'socks5']).toContain(protocol);
    if (typeof lifetimeMs === 'number') expect(lifetimeMs).toBeGreaterThanOrEqual(0);
    else expect([undefined, 'unknown']).toContain(lifetimeMs);
    if (exitIp !== undefined) expect(canonicalIp(exitIp)).toBe(exitIp);
    if (location !== undefined) expectPrintable(location, 200);
    if (onlineMs !== undefined) expect(onlineMs).toBeGreaterThanOrEqual(0);
  }
  for (const count of Object.values(dropped)) expect(count).toBeGreaterThan(0);
  for (const count of Object.values(quota)) expect(Number.isSafeInteger(count) && count >= 0).toBe(true);
}

function expectPrintable(text: string, length: number): void {
  expect(text.length).toBeLessThanOrEqual(length);
  expect(text.isWellFormed()).toBe(true);
  expect(text).not.toMatch(/[\p{Cc}\p{Zl}\p{Zp}]/u);
  expect(text).not.toContain('0123456789abcdef');
}
