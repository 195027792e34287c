/** Every key of one entry of `sources`. See schema.ts. */
import { z } from 'zod';
import { MEMBER_PROTOCOLS } from '../core/protocol.ts';
import { FORMATS, PRODUCTS } from '../service/operations.ts';
import { given, optional, required, section } from './keys.ts';
import { baseAddress, duration, key, oneOf, password, text, whole } from './scalars.ts';
import { HOUR_MS, MOST, ONE_SECOND_MS, secretFile, username, WEEK_MS } from './schema-values.ts';

/** One entry of `sources`. */
export const SOURCE = section({
  name: required(
    text({
      expected: '1 to 64 letters, digits, `_` and `.`',
      example: 'city',
      pattern: /^[A-Za-z0-9_.]{1,64}$/,
      maxBytes: 64,
      wrong: 'contains a character other than letters, digits, `_` and `.`',
    }),
    'name in routing options, status and metrics',
  ),
  product: required(oneOf(PRODUCTS), 'product family, which selects the operation of the service'),
  instance: required(
    text({
      expected: 'the id of an instance or application: 1 to 64 letters, digits, `_` and `-`',
      example: '"202611210001"',
      pattern: /^[A-Za-z0-9_-]{1,64}$/,
      maxBytes: 64,
      private: true,
    }),
    'id of the instance (of the application for `free`), sent as api, inst_id or app_id',
  ),
  password: optional(password(), 'password of the instance; noria derives the key from it'),
  passwordFile: optional(secretFile('/run/secrets/city'), 'file that contains the password'),
  akey: optional(key(), 'the 16-character key, in place of the password'),
  akeyFile: optional(secretFile('/run/secrets/city-key'), 'file that contains the key'),
  params: given(
    z.record(z.string(), z.union([z.string(), z.array(z.string())])),
    {},
    'parameters of the operation, by the names of the service; `count` is the maximum for one call',
  ),
  format: given(oneOf(FORMATS), 'json', 'format of the answers'),
  textLayout: optional(
    text({
      expected: 'the custom extraction format of the instance',
      example: '"{ip}:{port},{adr},{timeout}"',
      controls: true,
      maxBytes: 1000,
    }),
    'custom extraction format of the instance, for `format: text`',
    '`{ip}:{port}` on each line',
  ),
  host: optional(
    text({
      expected: 'host or host:port',
      example: 'node7.example.com',
      pattern: /^[^/@\s]+$/,
      wrong: 'is not host or host:port',
      private: true,
    }),
    'extraction server of the instance ({extract_host}), only for `short-pure`',
  ),
  baseUrl: optional(baseAddress(), 'address of the service for this source', '`service.baseUrl`'),
  upstream: given(
    section({
      protocol: optional(oneOf(MEMBER_PROTOCOLS), 'protocol of the members', 'by product and params'),
      auth: given(
        z.union([
          oneOf(['auto', 'none', 'instance']),
          section({
            username: required(username(), 'user name for the members'),
            password: optional(password(), 'password for the members'),
            passwordFile: optional(secretFile('/run/secrets/members'), 'file that contains the password'),
          }),
        ]),
        'auto',
        'credentials sent to members; `auto`: instance and password once most members ask for them; `instance`: the same, always; `none`: never any; or a user name and password',
      ),
      handshake: given(
        oneOf(['auto', 'plain', 'pipelined']),
        'auto',
        'SOCKS5 handshake; `plain`: wait for each reply of the member; `pipelined`: send all at once; `auto`: pipelined for members that accept it',
      ),
    }),
    {},
    'how noria talks to members',
  ),
  interval: optional(
    duration(100, HOUR_MS),
    'pace: minimum time from one call to the next',
    '10s, as the service recommends',
  ),
  dailyBudget: optional(whole(1, MOST.tunnels), 'maximum number of distinct IPs drawn in a day', 'no limit'),
  lifetime: optional(
    duration(ONE_SECOND_MS, WEEK_MS),
    'lifetime of members when the service reports none; each success renews it',
    '10m for reverse-proxy members; for others by product, see docs/service.md',
  ),
  size: optional(whole(1, MOST.members), 'number of usable members to hold for this source', '`pool.size`'),
  priority: given(
    whole(1, MOST.priority),
    '1',
    'noria draws from and uses a source only while no source with a smaller number can serve',
  ),
});

export type FileSource = z.output<typeof SOURCE>;
