/** Makes one draw in a new process with its own environment, and prints the code or the error message. */
import { systemClock } from '../../src/core/clock.ts';
import { Secret } from '../../src/core/secret.ts';
import { ServiceClient } from '../../src/service/client.ts';

const [baseUrl = ''] = process.argv.slice(2);
const client = new ServiceClient({ timeoutMs: 60_000, clock: systemClock, refuses: () => undefined });
const call = {
  baseUrl,
  product: 'short-classic',
  method: 'GET',
  format: 'json',
  instance: '1',
  key: new Secret('83aa400af464c76d'),
  params: {},
} as const;
const extract = async () => (await client.connect(call)).extract(call);
const said = await extract().then(
  ({ code }) => code,
  (error: Error) => error.message,
);
process.stdout.write(said);
