/** Clients do not notice that a member has died: noria tries another one before it answers. */
import { expect, test } from 'vitest';
import { curl } from '../support/curl.ts';
import { openTestSandbox, sourceLine, startNoria, untilReady } from '../support/noria.ts';
import { hasCommand } from '../support/tools.ts';

test.skipIf(!hasCommand('curl'))(
  'dying member: the next clients are served by others, with HTTP and SOCKS members',
  async () => {
    const sandbox = await openTestSandbox({ members: 8, lifetimeMs: 600_000 });
    const noria = await startNoria({
      sources: [
        sourceLine(sandbox, 'city', 'short-classic', 'size: 4, params: { count: 4 }'),
        sourceLine(sandbox, 'harbour', 'short-socks5', 'size: 4, params: { count: 4 }'),
      ],
    });
    await untilReady(noria, 8);
    const call = () => curl('-x', `http://${noria.proxy}`, '-p', `${sandbox.targetUrl}/ip`);
    const dead = new Set<string>();
    for (const product of ['short-classic', 'short-socks5'] as const) {
      const { id } = sandbox.instance(product);
      const victims = sandbox
        .members(id)
        .filter(({ port }) => noria.control.members().some((member) => member.port === port));
      for (const victim of victims.slice(0, 2)) {
        await sandbox.kill(victim.id);
        dead.add(victim.exit);
      }
    }
    const exits: string[] = [];
    for (let n = 0; n < 24; n += 1) {
      const { exitCode, out } = await call();
      expect(exitCode).toBe(0);
      exits.push(out.trim());
    }
    expect(dead.size).toBe(4);
    expect(exits.filter((exit) => dead.has(exit))).toEqual([]);
    expect(sandbox.strangers()).toEqual([]);
  },
);
