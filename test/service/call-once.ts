/** Makes one draw in a new process with its own environment, and prints the code or the error message. */
import { systemClock } from '../../src/core/clock.ts';
import { Secret } from '../../src/core/secret.ts';
import { extract } from '../../src/service/client.ts';
import { serviceUrl } from '../../src/service/request.ts';
import { Transport } from '../../src/service/transport.ts';

const [baseUrl = ''] = process.argv.slice(2);
const call = {
  baseUrl,
  product: 'short-classic',
  method: 'GET',
  format: 'json',
  instance: '1',
  key: new Secret('83aa400af464c76d'),
  params: {},
} as const;
const { signal } = new AbortController();
const draw = async () => {
  const transport = await Transport.open(serviceUrl(call), { timeoutMs: 60_000, clock: systemClock, signal });
  return extract(transport, call, { refuses: () => undefined });
};
const said = await draw().then(
  ({ code }) => code,
  (error: Error) => error.message,
);
process.stdout.write(said);
