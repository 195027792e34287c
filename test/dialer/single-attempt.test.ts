/** A single attempt through a leased member, as probes make it: its result, what it teaches, and how it ends early. */
import { getEventListeners } from 'node:events';
import { expect, test } from 'vitest';
import { Secret } from '../../src/core/secret.ts';
import type { DialerOptions } from '../../src/dialer/dialer.ts';
import type { SourceSettings } from '../../src/dialer/source-memory.ts';
import { targetOf } from './make-dialer.ts';
import { ended, makeScriptedDialer } from './scripted-dialer.ts';

const INSTANCE: SourceSettings = {
  auth: 'instance',
  instance: 'i',
  password: new Secret('12345678'),
  neverInstance: false,
  forwardMode: 'direct',
  handshake: 'plain',
};

function makeProbes(settings: Partial<DialerOptions> = {}) {
  const kit = makeScriptedDialer(['a', 'b', 'c', 'd', 'e'], {
    waitForMemberMs: 0,
    sources: new Map([['city', INSTANCE]]),
    ...settings,
  });
  let leases = 100;
  /** Starts an attempt through this member. */
  const probe = (id: string, given: { readonly signal?: AbortSignal; readonly timeoutMs?: number } = {}) => {
    const { at } = kit.memberOf(id);
    leases += 1;
    const lease = {
      id: leases,
      member: id,
      source: 'city',
      ...at,
      exit: at.host,
      waitedMs: 0,
      doubtful: true,
    };
    const { signal = new AbortController().signal, timeoutMs = 1_000 } = given;
    return kit.dialer.attempt(
      { lease, target: targetOf('probe.invalid:443'), use: 'tunnel', timeoutMs },
      signal,
    );
  };
  /** Fails dials, so that several members in a row get no answer. */
  const loseNetwork = async () => {
    kit.clock.advance(1_000);
    for (const id of ['a', 'b', 'c', 'd']) {
      kit.pool.members = [kit.memberOf(id)];
      const result = kit.dial('target.example:443');
      kit.close(id, 'EHOSTUNREACH');
      await ended(result);
    }
  };
  return { ...kit, probe, loseNetwork };
}

test('single attempt: an accepted one gives its connection and its time, and no longer counts', async () => {
  const { probe, answer, dialer, socketOf } = makeProbes();
  const { signal } = new AbortController();
  const result = probe('a', { signal });
  expect([dialer.openCount, getEventListeners(signal, 'abort').length]).toEqual([1, 1]);
  answer('a', 200, 30);
  expect(await ended(result)).toMatchObject({
    kind: 'accepted',
    ms: 30,
    connection: { forwardMode: 'direct' },
  });
  expect([dialer.openCount, getEventListeners(signal, 'abort').length]).toEqual([0, 0]);
  expect([socketOf('a').isPaused(), socketOf('a').destroyed]).toEqual([true, false]);
});

test.each([
  ['502, which may be the target', 502, undefined],
  ['407 of one member', 407, 'nobody'],
  ['404 in another protocol', 0, 'member'],
])('single attempt: the blame for %s', async (_, status, blame) => {
  const { probe, answer, connect, say } = makeProbes();
  const result = probe('a');
  if (status > 0) answer('a', status);
  else {
    connect('a');
    say('a', 'SSH-2.0-x');
  }
  expect(await ended(result)).toMatchObject({ kind: 'failed', blame });
});

test('single attempt: a refusal is the fault of the source when that is faulty, of the member when others are accepted', async () => {
  const faulty = makeProbes();
  const blames = [];
  for (const id of ['a', 'b', 'c', 'd']) {
    const result = faulty.probe(id);
    faulty.answer(id, 407);
    blames.push(await ended(result));
  }
  expect(blames).toMatchObject(['nobody', 'nobody', 'source', 'source'].map((blame) => ({ blame })));
  expect(faulty.sourceFaults).toHaveLength(1);
  faulty.dialer.resetRefusals('elsewhere');
  faulty.dialer.resetRefusals('city');
  const again = faulty.probe('e');
  faulty.answer('e', 407);
  expect(await ended(again), 'after a reset').toMatchObject({ blame: 'nobody' });
  const working = makeProbes();
  const accepted = working.probe('a');
  working.answer('a', 200);
  await ended(accepted);
  const refused = working.probe('b');
  working.answer('b', 407);
  expect(await ended(refused)).toMatchObject({ blame: 'member' });
});

test('single attempt: is cancelled by its signal, by the close of the dialer, and before it starts', async () => {
  const { probe, dialer, opened } = makeProbes();
  const aborted = new AbortController();
  const result = probe('a', { signal: aborted.signal });
  aborted.abort();
  expect([await ended(result), opened.length, opened[0]?.socket.destroyed]).toEqual([
    { kind: 'cancelled' },
    1,
    true,
  ]);
  expect(await ended(probe('b', { signal: aborted.signal }))).toEqual({ kind: 'cancelled' });
  const closing = new AbortController();
  const last = probe('c', { signal: closing.signal });
  await dialer.close();
  expect([await ended(last), dialer.openCount]).toEqual([{ kind: 'cancelled' }, 0]);
  expect(getEventListeners(closing.signal, 'abort')).toEqual([]);
  expect(await ended(probe('d'))).toEqual({ kind: 'cancelled' });
  expect(opened).toHaveLength(2);
});

test('single attempt: while the network is down, nobody is blamed but the network, and any answer ends that', async () => {
  for (const end of ['accepts', 'answers 502', 'refuses', 'elsewhere'] as const) {
    const { probe, close, answer, loseNetwork, networkDown, dialer } = makeProbes();
    await loseNetwork();
    expect(networkDown).toEqual([true]);
    const lost = probe('e');
    close('e', 'EHOSTUNREACH');
    expect(await ended(lost)).toMatchObject({ blame: 'network', failure: { fault: 'member-unreachable' } });
    expect(networkDown).toEqual([true]);
    if (end === 'elsewhere') dialer.answeredElsewhere();
    else {
      const result = probe('e');
      if (end === 'refuses') close('e', 'ECONNREFUSED');
      else answer('e', end === 'accepts' ? 200 : 502);
      await ended(result);
    }
    expect(networkDown, end).toEqual([true, false]);
  }
});

test.each([
  ['10001', [true, false]],
  ['transport', [true]],
  ['front-proxy-failed', [true]],
])('network: whether a draw with the result %s shows that it is up', async (code, expected) => {
  const { loseNetwork, networkDown, bus } = makeProbes();
  await loseNetwork();
  const counts = { asked: 1, received: 1, joined: 1, renewed: 0, rejected: 0, forbidden: 0, ms: 1 };
  bus.emit('draw.done', { source: 'city', ...counts, code });
  expect(networkDown).toEqual(expected);
});

test('network: an attempt that took longer than the silence of all others does not count', async () => {
  const { dial, pool, memberOf, close, clock, answer, networkDown } = makeProbes();
  pool.members = [memberOf('e')];
  const served = dial('target.example:443');
  clock.advance(100);
  const lost = [];
  for (const id of ['a', 'b', 'c', 'd']) {
    pool.members = [memberOf(id)];
    lost.push(dial('target.example:443'));
  }
  answer('e', 200, 100);
  await ended(served);
  clock.advance(50);
  pool.members = [];
  for (const id of ['a', 'b', 'c', 'd']) close(id, 'EHOSTUNREACH');
  await ended(Promise.all(lost));
  expect(networkDown).toEqual([]);
});
