import { once } from 'node:events';
import { createServer } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { send, WebServer } from '../../src/sandbox/web-server.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';

test('web server: listens again after a refusal, even if another program holds its port for some time', async () => {
  const clock = new ManualClock();
  const server = new WebServer('127.0.0.1', 0, clock, async (_request, response) =>
    send(response, 200, { type: 'text/plain', body: 'here' }),
  );
  await server.open();
  onTestFinished(() => server.close());
  server.refuseFor(1_000);
  const other = createServer();
  onTestFinished(() => void other.close());
  other.listen(server.port, '127.0.0.1');
  await once(other, 'listening');

  clock.advance(1_000);
  await until('it has failed and waits to retry', () => clock.armedCount === 1);
  other.close();
  await once(other, 'close');
  clock.advance(Math.max(...clock.armedMs));
  await until('it answers', async () => (await answerOf(server.url)) === 'here');
  expect(clock.armedCount).toBe(0);
});

function answerOf(url: string): Promise<string> {
  return fetch(url).then(
    (response) => response.text(),
    () => 'refused',
  );
}
