/** The control API: everything that a test can do with a sandbox over HTTP. */
import { expect, test } from 'vitest';
import { CONTROL_ROUTES, type Sandbox } from '../../src/sandbox/sandbox.ts';
import { ask, draw, getThrough, open } from './client.ts';

async function control(
  sandbox: Sandbox,
  request: string,
  body?: unknown,
): Promise<{ status: number; answer: unknown }> {
  const [method = '', path = ''] = request.split(' ');
  const response = await fetch(`${sandbox.url}/_control/${path}`, {
    method,
    ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
  const text = await response.text();
  return { status: response.status, answer: text === '' ? undefined : JSON.parse(text) };
}

test('control: the root lists every request', async () => {
  const sandbox = await open();
  const { answer } = await control(sandbox, 'GET ');
  expect(Object.keys(CONTROL_ROUTES).length, 'nothing to compare').toBeGreaterThan(10);
  expect(answer).toEqual(
    Object.entries(CONTROL_ROUTES).map(([route, [does]]) => ({
      request: route.replace(' ', ' /_control/'),
      does,
    })),
  );
});

test('control: lists instances and changes their condition', async () => {
  const sandbox = await open();
  const { id } = sandbox.instance('short-classic');
  const { answer } = await control(sandbox, 'GET instances');
  expect(answer).toHaveLength(8);
  expect(answer).toContainEqual(JSON.parse(JSON.stringify(sandbox.instance('short-classic'))));
  const changed = await control(sandbox, `PATCH instances/${id}`, { frozen: true, usageLimit: null });
  expect(changed).toMatchObject({ status: 200, answer: { id, condition: { frozen: true, expired: false } } });
  expect((await ask(sandbox, 'short-classic')).code).toBe('12006');
});

test('control: lists members, sets their behaviour and ends their lives', async () => {
  const sandbox = await open();
  const [entry] = await draw(sandbox, 'short-classic', { count: '1' });
  if (entry === undefined) throw new Error('nothing was drawn');
  const [member] = sandbox.members();
  const { answer } = await control(sandbox, 'GET members');
  expect(answer).toMatchObject([
    { id: member?.id, host: entry.ip, port: entry.port, behaviour: { how: 'good' } },
  ]);
  expect((await control(sandbox, `PUT members/${member?.id}`, { how: 'status', status: 503 })).status).toBe(
    204,
  );
  expect((await getThrough(entry, `${sandbox.targetUrl}/ip`)).status).toBe(503);
  expect((await control(sandbox, `DELETE members/${member?.id}`)).status).toBe(204);
  await expect(getThrough(entry, `${sandbox.targetUrl}/ip`)).rejects.toThrow(/ECONNREFUSED/);
  expect((await control(sandbox, `DELETE members/${member?.id}`)).status).toBe(404);
});

test('control: adds, lists, replaces and removes rules', async () => {
  const sandbox = await open({ paceMs: 0 });
  const rule = { operation: 'short-classic', times: 1, answer: { code: '12009' } };
  const added = await control(sandbox, 'POST rules', rule);
  expect(added).toEqual({ status: 200, answer: { id: 'r1' } });
  expect((await control(sandbox, 'GET rules')).answer).toEqual([{ id: 'r1', ...rule, used: 0 }]);
  expect((await ask(sandbox, 'short-classic')).code).toBe('12009');
  const replaced = await control(sandbox, 'PUT rules', [
    { answer: { fault: 'bom' } },
    { answer: { code: 12006 } },
  ]);
  expect(replaced.answer).toMatchObject([{ id: 'r2' }, { id: 'r3', answer: { code: '12006' } }]);
  expect((await control(sandbox, 'DELETE rules/r2')).status).toBe(204);
  expect((await ask(sandbox, 'short-classic')).code).toBe('12006');
  expect((await control(sandbox, 'DELETE rules')).status).toBe(204);
  expect((await ask(sandbox, 'short-classic')).code).toBe('10001');
  expect((await control(sandbox, 'DELETE rules/r3')).status).toBe(404);
});

test('control: reports statistics, calls and the target, and resets the statistics', async () => {
  const sandbox = await open();
  const [entry] = await draw(sandbox, 'short-classic', { count: '1' });
  if (entry === undefined) throw new Error('nothing was drawn');
  await getThrough(entry, `${sandbox.targetUrl}/ip`);
  expect((await control(sandbox, 'GET stats')).answer).toMatchObject({
    calls: 1,
    paceBreaks: 0,
    codes: { '10001': 1 },
  });
  expect((await control(sandbox, 'GET calls')).answer).toMatchObject([
    { operation: 'short-classic', outcome: '10001' },
  ]);
  expect((await control(sandbox, 'GET target')).answer).toEqual({
    url: sandbox.targetUrl,
    requests: 1,
    connections: { [entry.ip]: 1 },
  });
  expect((await control(sandbox, 'DELETE stats')).status).toBe(204);
  expect((await control(sandbox, 'GET stats')).answer).toMatchObject({ calls: 0, codes: {} });
});

test('control: explains an invalid request and changes nothing', async () => {
  const sandbox = await open();
  const wrong = await control(sandbox, 'POST rules', {
    operation: 'nothing',
    answer: { code: '12009' },
    colour: 1,
  });
  expect(wrong).toMatchObject({ status: 400, answer: { error: { code: 'bad-config' } } });
  expect(JSON.stringify(wrong.answer)).toMatch(/rule: .*operation: .*colour/);
  expect((await control(sandbox, 'POST rules', '{')).status).toBe(400);
  expect((await control(sandbox, 'PUT rules', [{ answer: {} }])).status).toBe(400);
  expect((await control(sandbox, 'PATCH instances/nobody', {})).status).toBe(404);
  expect((await control(sandbox, 'POST members')).status).toBe(405);
  expect((await control(sandbox, 'GET nothing')).status).toBe(404);
  expect(await control(sandbox, 'DELETE rules/%E0%A4%A')).toMatchObject({
    status: 400,
    answer: { error: { code: 'bad-request', message: expect.stringContaining('rules/%E0%A4%A') } },
  });
  expect(sandbox.rules.list()).toEqual([]);
});
