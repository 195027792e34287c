/** One draw in a process of its own, so that its environment is its own: prints the code, or the fault. */
import { systemClock } from '../../src/core/clock.ts';
import { Secret } from '../../src/core/secret.ts';
import { openServiceClient } from '../../src/service/client.ts';

const [baseUrl = ''] = process.argv.slice(2);
const client = openServiceClient({ timeoutMs: 60_000, clock: systemClock, refuses: () => undefined });
const call = {
  baseUrl,
  product: 'short-classic',
  method: 'GET',
  format: 'json',
  instance: '1',
  key: new Secret('83aa400af464c76d'),
  params: {},
} as const;
const said = await client.extract(call).then(
  ({ code }) => code,
  (error: Error) => error.message,
);
process.stdout.write(said);
