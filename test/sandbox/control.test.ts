/** The control API: everything a test can do in the process, from outside it. */
import { expect, test } from 'vitest';
import { CONTROL_ROUTES } from '../../src/sandbox/control.ts';
import type { Sandbox } from '../../src/sandbox/sandbox.ts';
import { ask, draw, getThrough, open } from './client.ts';

async function steer(
  sandbox: Sandbox,
  request: string,
  body?: unknown,
): Promise<{ status: number; told: unknown }> {
  const [method = '', path = ''] = request.split(' ');
  const response = await fetch(`${sandbox.url}/_control/${path}`, {
    method,
    ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
  const text = await response.text();
  return { status: response.status, told: text === '' ? undefined : JSON.parse(text) };
}

test('control: its root lists every request there is', async () => {
  const sandbox = await open();
  const { told } = await steer(sandbox, 'GET ');
  expect(CONTROL_ROUTES.length, 'nothing to compare').toBeGreaterThan(10);
  expect(told).toEqual(
    CONTROL_ROUTES.map(({ method, path, does }) => ({ request: `${method} /_control/${path}`, does })),
  );
});

test('control: instances are listed with what their owner knows, and their condition can be changed', async () => {
  const sandbox = await open();
  const { id } = sandbox.instance('short-classic');
  const { told } = await steer(sandbox, 'GET instances');
  expect(told).toHaveLength(8);
  expect(told).toContainEqual(JSON.parse(JSON.stringify(sandbox.instance('short-classic'))));
  const changed = await steer(sandbox, `PATCH instances/${id}`, { frozen: true, usageLimit: null });
  expect(changed).toMatchObject({ status: 200, told: { id, condition: { frozen: true, expired: false } } });
  expect((await ask(sandbox, 'short-classic')).code).toBe('12006');
});

test('control: members are listed, misbehave and die', async () => {
  const sandbox = await open();
  const [entry] = await draw(sandbox, 'short-classic', { count: '1' });
  if (entry === undefined) throw new Error('nothing was drawn');
  const [member] = sandbox.members();
  const { told } = await steer(sandbox, 'GET members');
  expect(told).toMatchObject([
    { id: member?.id, host: entry.ip, port: entry.port, behaviour: { how: 'good' } },
  ]);
  expect((await steer(sandbox, `PUT members/${member?.id}`, { how: 'status', status: 503 })).status).toBe(
    204,
  );
  expect((await getThrough(entry, `${sandbox.targetUrl}/ip`)).status).toBe(503);
  expect((await steer(sandbox, `DELETE members/${member?.id}`)).status).toBe(204);
  await expect(getThrough(entry, `${sandbox.targetUrl}/ip`)).rejects.toThrow(/ECONNREFUSED/);
  expect((await steer(sandbox, `DELETE members/${member?.id}`)).status).toBe(404);
});

test('control: rules are added, listed, replaced and removed', async () => {
  const sandbox = await open({ paceMs: 0 });
  const rule = { operation: 'short-classic', times: 1, answer: { code: '12009' } };
  const added = await steer(sandbox, 'POST rules', rule);
  expect(added).toEqual({ status: 200, told: { id: 'r1' } });
  expect((await steer(sandbox, 'GET rules')).told).toEqual([{ id: 'r1', ...rule, used: 0 }]);
  expect((await ask(sandbox, 'short-classic')).code).toBe('12009');
  const replaced = await steer(sandbox, 'PUT rules', [
    { answer: { fault: 'bom' } },
    { answer: { code: 12006 } },
  ]);
  expect(replaced.told).toMatchObject([{ id: 'r2' }, { id: 'r3', answer: { code: '12006' } }]);
  expect((await steer(sandbox, 'DELETE rules/r2')).status).toBe(204);
  expect((await ask(sandbox, 'short-classic')).code).toBe('12006');
  expect((await steer(sandbox, 'DELETE rules')).status).toBe(204);
  expect((await ask(sandbox, 'short-classic')).code).toBe('10001');
  expect((await steer(sandbox, 'DELETE rules/r3')).status).toBe(404);
});

test('control: stats, calls and the target can be read, and stats begun again', async () => {
  const sandbox = await open();
  const [entry] = await draw(sandbox, 'short-classic', { count: '1' });
  if (entry === undefined) throw new Error('nothing was drawn');
  await getThrough(entry, `${sandbox.targetUrl}/ip`);
  expect((await steer(sandbox, 'GET stats')).told).toMatchObject({
    calls: 1,
    paceBreaks: 0,
    codes: { '10001': 1 },
  });
  expect((await steer(sandbox, 'GET calls')).told).toMatchObject([
    { operation: 'short-classic', outcome: '10001' },
  ]);
  expect((await steer(sandbox, 'GET target')).told).toEqual({
    url: sandbox.targetUrl,
    requests: 1,
    connections: { [entry.ip]: 1 },
  });
  expect((await steer(sandbox, 'DELETE stats')).status).toBe(204);
  expect((await steer(sandbox, 'GET stats')).told).toMatchObject({ calls: 0, codes: {} });
});

test('control: what is wrong is said, and changes nothing', async () => {
  const sandbox = await open();
  const wrong = await steer(sandbox, 'POST rules', {
    operation: 'nothing',
    answer: { code: '12009' },
    colour: 1,
  });
  expect(wrong).toMatchObject({ status: 400, told: { error: { code: 'bad-config' } } });
  expect(JSON.stringify(wrong.told)).toMatch(/rule: .*operation: .*colour/);
  expect((await steer(sandbox, 'POST rules', '{')).status).toBe(400);
  expect((await steer(sandbox, 'PUT rules', [{ answer: {} }])).status).toBe(400);
  expect((await steer(sandbox, 'PATCH instances/nobody', {})).status).toBe(404);
  expect((await steer(sandbox, 'POST members')).status).toBe(405);
  expect((await steer(sandbox, 'GET nothing')).status).toBe(404);
  expect(await steer(sandbox, 'DELETE rules/%E0%A4%A')).toMatchObject({
    status: 400,
    told: { error: { code: 'bad-request', message: expect.stringContaining('rules/%E0%A4%A') } },
  });
  expect(sandbox.rules.list()).toEqual([]);
});
