/** The keys of one entry of `sources`. schema.ts has all other keys. */
import { z } from 'zod';
import { HOUR_MS, SECOND_MS, WEEK_MS } from '../core/duration.ts';
import { MEMBER_PROTOCOLS } from '../core/protocol.ts';
import { ANSWER_FORMATS, DEFAULT_ZONE, EXPIRY_KINDS } from '../service/link/rules.ts';
import { FORMATS, METHODS, SOURCE_PRODUCTS } from '../service/operations.ts';
import { given, group, optional, optionalGroup, required, section } from './keys.ts';
import {
  amount,
  baseAddress,
  duration,
  filePath,
  key,
  linkUrl,
  MAX,
  oneOf,
  pageAddress,
  password,
  secretFile,
  secretText,
  shortName,
  text,
  username,
  whole,
  zone,
} from './scalars.ts';

const field = (example: string) =>
  text({ expected: 'the name of a field, or its path with dots', example, maxBytes: 200 });
const codeRule = (about: string, example: string) =>
  optionalGroup(about, '–', {
    field: required(field('code'), 'field of the answer that the rule checks, for example code'),
    is: required(
      z.array(text({ expected: 'a value of the field', example })).min(1),
      'the rule applies if the value of the field is in this list',
    ),
  });

const ANSWER = section({
  format: given(
    oneOf(ANSWER_FORMATS),
    'auto',
    'format of the answers; `auto`: noria decides by their first character',
  ),
  list: optional(
    field('data.proxy_list'),
    'path of the list in a JSON answer; `.`: the whole answer is the list',
    'the first list with addresses',
  ),
  address: optional(
    text({
      expected: 'fields in braces',
      example: '"{ip}:{port}"',
      maxBytes: 200,
    }),
    'the fields that form the address, such as {ip}:{port}; if the entries are text, the layout of the whole entry',
    'noria finds the fields by their usual names',
  ),
  expiry: optionalGroup(
    'when an entry expires',
    'noria finds the field by its usual names, such as `expire_time`; if there is none, `lifetime` of the source applies',
    {
      field: required(field('expire_time'), 'field with the expiry'),
      as: required(
        oneOf(EXPIRY_KINDS),
        'what the field contains: the time left in seconds or minutes, a date and time, or Unix time in seconds or ms',
      ),
      since: optional(
        field('start_time'),
        'field with the date and time at which a lifetime in seconds or minutes begins',
        'the time of the call',
      ),
      zone: given(zone(), DEFAULT_ZONE, 'time zone of a date and time that has no zone'),
    },
  ),
  exitIp: optional(
    field('real_ip'),
    'field with the exit IP',
    'noria finds the field by its usual names, such as `real_ip`',
  ),
  location: optional(
    z.array(field('city')),
    'fields with the location, joined by spaces',
    'noria finds the fields by their usual names',
  ),
  ok: codeRule('which answers are a success; if this rule is set, every other answer is an error', '"0"'),
  tooFast: codeRule('which answers mean that calls come too often; noria then calls less often', '"113"'),
  denied: codeRule(
    'which answers mean that a person must act, for example because the key is wrong or has expired',
    '"401"',
  ),
  empty: codeRule('which answers mean that no proxies are available at the moment', '"-3"'),
});

export const SOURCE = section({
  name: required(
    shortName('letters, digits, `_` and `.`', /^[A-Za-z0-9_.]{1,64}$/, 'city'),
    'name of the source in routing options, status and metrics',
  ),
  product: required(
    oneOf(SOURCE_PRODUCTS),
    'product family, which selects the operation of the service; `link`: an extraction link of any vendor; `gateway`: a gateway whose user name chooses the exit; `list`: a list of proxies in a file or at a URL',
  ),
  instance: optional(
    text({
      expected: 'the id of an instance or application: 1 to 64 letters, digits, `_` and `-`',
      example: '"202611210001"',
      pattern: /^[A-Za-z0-9_-]{1,64}$/,
      maxBytes: 64,
      private: true,
    }),
    'id of the instance (of the application for `free`), sent as api, inst_id or app_id',
    'required for the products of the service',
  ),
  password: optional(password(), 'password of the instance; noria derives the key from it'),
  passwordFile: optional(secretFile('/run/secrets/city'), 'file that contains the password'),
  akey: optional(key(), 'the 16-character key, in place of the password'),
  akeyFile: optional(secretFile('/run/secrets/city-key'), 'file that contains the key'),
  params: given(
    z.record(z.string(), z.union([z.string(), z.array(z.string())])),
    {},
    'parameters of the operation, with the names that the service uses; `count` is the maximum number of members for one call',
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
    'extraction server of the instance (extract_host in the documentation of the service), only for `short-pure`',
  ),
  baseUrl: optional(baseAddress(), 'address of the service for this source', '`service.baseUrl`'),
  url: optional(
    linkUrl(),
    'the extraction link, for `link`; noria replaces `{count}` in it with the number of proxies that the call asks for; for `list`, the address of the list',
    'required for `link`',
  ),
  urlFile: optional(secretFile('/run/secrets/link'), 'file that contains the link'),
  address: optional(
    text({
      expected: 'host:port or [v6]:port',
      example: 'gw.vendor.example:8000',
      pattern: /^[^/@\s]+:\d{1,5}$/,
      wrong: 'is not host:port',
    }),
    'address of the gateway, for `gateway`',
    'required for `gateway`',
  ),
  file: optional(
    filePath('proxies.txt'),
    'file with the list, for `list`; noria reads it again when it changes',
    'the list is at `url`',
  ),
  refresh: optional(
    duration(SECOND_MS, WEEK_MS),
    'how often noria reads the list, for `list`; members leave when they leave the list',
    '5m',
  ),
  rotate: optionalGroup(
    'new exits for the members of a `list`, such as modems: noria drains one member after another, calls the URL, waits, and verifies the exit',
    undefined,
    {
      url: required(
        linkUrl(),
        'URL that gives a member a new exit; noria replaces `{host}` and `{port}` in it with the address of the member',
      ),
      every: given(duration(SECOND_MS, WEEK_MS), '10m', 'how often each member gets a new exit'),
      settle: given(duration(100, HOUR_MS), '5s', 'how long a member needs for its new exit'),
      check: optional(
        pageAddress(),
        'page that answers with the address of its client, with which noria verifies that the exit changed',
        '`health.check.url`',
      ),
    },
  ),
  whitelist: optionalGroup(
    "how noria authorises this machine's address when the service answers that it is not authorised; for products with calls",
    undefined,
    {
      url: required(
        linkUrl(),
        "the vendor's URL that authorises an address; noria replaces `{ip}` in it with the address of this machine",
      ),
      every: given(
        duration(SECOND_MS, WEEK_MS),
        '10m',
        'minimum time between two calls of the URL with the same address',
      ),
      myIp: optional(
        text({
          expected: 'an IP address, or an http:// or https:// URL that answers with one',
          example: '203.0.113.7',
          pattern: /^(?:https?:\/\/[^\s/@]+(?:\/\S*)?|[\da-fA-F.:]{3,45})$/,
          wrong: 'is neither an IP address nor a URL',
        }),
        'the address of this machine, or a URL that answers with it, for a service that does not name the address',
        "the address in the service's answer",
      ),
    },
  ),
  method: optional(
    oneOf(METHODS),
    'HTTP method with which noria calls the link',
    'POST with a `body`, else GET',
  ),
  headers: given(z.record(z.string(), z.string()), {}, 'HTTP headers that noria sends to the link'),
  body: optional(secretText('{"num": "{count}"}'), 'body that noria sends to the link: a form, or JSON'),
  answer: given(
    ANSWER,
    {},
    'rules for reading the answers of a link; noria recognises usual formats and field names without rules',
  ),
  upstream: group('how noria talks to members', {
    protocol: optional(
      oneOf(MEMBER_PROTOCOLS),
      'protocol of the members',
      'depends on product and params; `link`: the protocol in the entry, or http',
    ),
    auth: given(
      z.union([
        oneOf(['auto', 'none', 'instance', 'entry']),
        section({
          username: required(username(), 'user name for the members'),
          password: optional(password(), 'password for the members'),
          passwordFile: optional(secretFile('/run/secrets/members'), 'file that contains the password'),
        }),
      ]),
      'auto',
      'credentials that noria sends to members; `auto`: the id and the password of the instance, once most members ask for credentials; `instance`: the id and the password of the instance, always; `entry`: the credentials in each entry of a link; `none`: no credentials; a map: this user name and password',
    ),
    handshake: given(
      oneOf(['auto', 'plain', 'pipelined']),
      'auto',
      'SOCKS5 handshake; `plain`: wait for each reply of the member; `pipelined`: send all messages at once; `auto`: pipelined for members that accept it',
    ),
  }),
  interval: optional(
    duration(100, HOUR_MS),
    'pace: minimum time from one call to the next',
    '10s, as the service recommends; required for `link`; none for `gateway` and `list`',
  ),
  dailyBudget: optional(whole(1, MAX.tunnels), 'maximum number of distinct IPs drawn in a day', 'no limit'),
  lifetime: optional(
    duration(SECOND_MS, WEEK_MS),
    'lifetime of members when the service reports none; it starts again each time the member works',
    '10m if the service reports a lifetime of -1 (unknown), and for `gateway`; none for `list`; otherwise 60s for `link`; for the other products, see docs/service.md',
  ),
  size: optional(whole(1, MAX.members), 'number of usable members to hold for this source', '`pool.size`'),
  price: optional(
    amount(),
    'price of one drawn IP, in any currency, for usage and spend; for `gateway`, of one GB of traffic',
    'spend is not counted',
  ),
  priority: given(
    whole(1, MAX.priority),
    '1',
    'noria uses a source, and draws from it, only while no source with a smaller priority number can serve clients',
  ),
});

export type FileSource = z.output<typeof SOURCE>;
