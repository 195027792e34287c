/**
 * Answers on the wire: JSON, XML and Text, in the layouts that the specification and real clients show.
 *
 * An answer is built from fields and printed in the requested format. A refusal in the Text type is a JSON envelope,
 * because clients look for its `msg`. Source: service-spec, Resources and their fields.
 */
import { SUCCESS_CODE } from './codes.ts';
import type { AnswerFormat } from './operations.ts';

export type Value = string | number | boolean;
export type Entry = Readonly<Record<string, Value>>;

/** The content of an answer, independent of its format. */
export interface Answer {
  readonly code: string;
  readonly msg: string;
  /** The data of a successful extraction operation: first the counters in order, then the proxies. */
  readonly data?: { readonly counters: Readonly<Record<string, number>>; readonly entries: readonly Entry[] };
  /** The list of operations 9 and 10, under the name that the operation gives it. */
  readonly list?: { readonly name: 'serverList' | 'instance_list'; readonly items: readonly Entry[] };
}

export interface Layout {
  readonly format: AnswerFormat;
  /** Formats an entry as one line of the Text type. */
  readonly line: (entry: Entry) => string;
  /** The entry fields of JSON and XML answers; default: all. */
  readonly fields?: readonly string[] | undefined;
}

export interface Printed {
  readonly body: string;
  readonly contentType: string;
}

const CONTENT_TYPES: Readonly<Record<AnswerFormat, string>> = {
  json: 'application/json; charset=utf-8',
  xml: 'text/xml; charset=utf-8',
  text: 'text/plain; charset=utf-8',
};

export function print(answer: Answer, { format, line, fields }: Layout): Printed {
  if (format === 'xml')
    return { body: printXml(selectFields(answer, fields)), contentType: CONTENT_TYPES.xml };
  if (format === 'text' && answer.code === SUCCESS_CODE && answer.data !== undefined) {
    return { body: answer.data.entries.map(line).join('\r\n'), contentType: CONTENT_TYPES.text };
  }
  return { body: printJson(selectFields(answer, fields)), contentType: CONTENT_TYPES[format] };
}

function selectFields(answer: Answer, fields: readonly string[] | undefined): Answer {
  if (answer.data === undefined || fields === undefined) return answer;
  const entries = answer.data.entries.map((entry) =>
    Object.fromEntries(Object.entries(entry).filter(([name]) => fields.includes(name))),
  );
  return { ...answer, data: { ...answer.data, entries } };
}

/** `ip:port`, the Text line of a paid product without a custom extraction format. */
export function plainLine({ ip, port }: Entry): string {
  return `${ip}:${port}`;
}

/** `[level]ip:port@protocol#location`, the Text line of the free product. */
export function freeLine({ level, ip, port, protocol, adr }: Entry): string {
  return `[${level}]${ip}:${port}@${protocol}#${adr}`;
}

/** A custom extraction format: each `{tag}` is replaced by the field with that name. Unknown tags do not change. */
export function customLine(layout: string): (entry: Entry) => string {
  return (entry) => layout.replace(/\{(\w+)\}/g, (tag, name: string) => String(entry[name] ?? tag));
}

function printJson({ code, msg, data, list }: Answer): string {
  return JSON.stringify({
    code,
    msg,
    ...(data && { data: { count: data.entries.length, ...data.counters, proxy_list: data.entries } }),
    ...(list && { [list.name]: list.items }),
  });
}

function printXml({ code, msg, data }: Answer): string {
  const counters = data && { count: data.entries.length, ...data.counters };
  const proxies = data?.entries.map((entry) => element('proxy', elements(entry))).join('') ?? '';
  const body = counters && element('data', elements(counters) + element('proxy_list', proxies));
  return `<?xml version="1.0" encoding="utf-8"?>\n${element('result', elements({ code, msg }) + (body ?? ''))}\n`;
}

function elements(fields: Readonly<Record<string, Value>>): string {
  return Object.entries(fields)
    .map(([name, value]) => element(name, escapeXml(String(value))))
    .join('');
}

function element(name: string, content: string): string {
  return `<${name}>${content}</${name}>`;
}

function escapeXml(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;');
}
