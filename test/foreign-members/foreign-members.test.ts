/**
 * Members that are proxies of other projects. Their answers for a dead target differ, but none of them may cost a
 * member anything, and a client gets the same answer from noria each time.
 */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, onTestFinished, test } from 'vitest';
import { systemClock } from '../../src/core/clock.ts';
import { openDialerWithPool } from '../dialer/real-pool.ts';
import { listen, RawClient } from '../listener/harness.ts';
import { hasCommand } from '../support/tools.ts';
import { FOREIGN_MEMBERS } from './foreign-members.ts';

const MEMBERS = 6;

async function openOrigin(): Promise<string> {
  const server = createServer((_, response) => response.end('hello'));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

describe.each(FOREIGN_MEMBERS)('foreign members: $name', ({ command, connectOnlyTo443, open }) => {
  test.skipIf(command !== undefined && !hasCommand(command))(
    'dead targets are reported as such by two or three members, and live ones are served',
    async () => {
      const live = await openOrigin();
      const { dialer, quarantined, left } = openDialerWithPool(await open(MEMBERS), {
        clock: systemClock,
        attemptTimeoutMs: 5_000,
        waitForMemberMs: 60_000,
        deadlineMs: 90_000,
      });
      const { port, events } = await listen(dialer);
      const ask = async (head: string) => {
        const client = await RawClient.open(port);
        client.send(`${head}\r\n\r\n`);
        const answer = await client.until('an answer', (text) => /\r\n\r\n[\s\S]*\S|200 Conn/.test(text));
        client.socket.destroy();
        return answer;
      };
      const connect = (target: string) => ask(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}`);
      const get = (target: string) => ask(`GET http://${target}/ HTTP/1.1\r\nHost: ${target}`);
      let number = 0;
      const dead = () => `127.0.1.${++number}:1`;
      const failure = (answer: string) => {
        expect(answer).toMatch(/^HTTP\/1.1 502 /);
        expect(answer).toContain('X-Noria-Error: target-unreachable');
        return Number(/(\d+) members? tried/.exec(answer)?.[1]);
      };

      for (let time = 0; time < 4; time += 1) expect(failure(await connect(dead()))).toBeLessThanOrEqual(3);
      if (!connectOnlyTo443) {
        for (let time = 0; time < MEMBERS; time += 1) expect(await connect(live)).toMatch(/^HTTP\/1.1 200 /);
        expect(failure(await connect(dead()))).toBe(2);
      }
      for (let time = 0; time < 4; time += 1) {
        expect(await get(live)).toMatch(/^HTTP\/1.1 200 [\s\S]*hello$/);
        expect(failure(await get(dead()))).toBeLessThanOrEqual(connectOnlyTo443 ? 4 : 3);
      }
      expect([quarantined, left]).toEqual([[], []]);
      expect(events('client.refused').filter(({ code }) => code !== 'target-unreachable')).toEqual([]);
    },
  );
});
