/**
 * The files of the dashboard and the documentation. noria reads them once, when the admin server starts, and serves
 * them from memory. In the single executable they are assets: `page/NAME` and `docs/NAME` (scripts/package).
 */
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { getAssetKeys, getRawAsset, isSea } from 'node:sea';
import { createRoute, type OpenAPIHono, z } from '@hono/zod-openapi';
import type { Context } from 'hono';
import { NOT_FOUND, textResponse } from './openapi.ts';

interface PageFile {
  readonly path: string;
  readonly type: string;
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly etag: string;
}

const TYPES: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  css: 'text/css; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  svg: 'image/svg+xml',
};

export const UPLOT_FILES = {
  'uplot.js': 'uplot/dist/uPlot.esm.js',
  'uplot.css': 'uplot/dist/uPlot.min.css',
} as const;

const PAGE_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

const DOCS_FOLDERS = [new URL('./docs/', import.meta.url), new URL('../../docs/', import.meta.url)];

export function readPageFiles(): readonly PageFile[] {
  if (isSea()) return getAssetKeys().flatMap(readAsset);
  const folder = new URL('./page/', import.meta.url);
  const own = readdirSync(folder).filter((name) => TYPES[extensionOf(name)] !== undefined);
  return [
    ...own.map((name) => pageFile(name, readBytes(new URL(name, folder)))),
    ...Object.entries(UPLOT_FILES).map(([name, specifier]) =>
      pageFile(name, readBytes(new URL(import.meta.resolve(specifier)))),
    ),
    ...readDocs(),
  ];
}

function readAsset(key: string): PageFile[] {
  const [folder, name] = [key.slice(0, key.indexOf('/')), key.slice(key.indexOf('/') + 1)];
  const bytes = new Uint8Array(getRawAsset(key)); // not a copy
  if (folder === 'page') return [pageFile(name, bytes)];
  return folder === 'docs' ? [docsFile(name, bytes)] : [];
}

function readDocs(): PageFile[] {
  const folder = DOCS_FOLDERS.find((url) => existsSync(url));
  if (folder === undefined) return [];
  const names = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) =>
    name.endsWith('.md'),
  );
  return names.map((name) => docsFile(name, readBytes(new URL(name, folder))));
}

export function addPage(app: OpenAPIHono, files: readonly PageFile[]): void {
  const byPath = new Map(files.map((file) => [file.path, file]));
  const serve = (context: Context, path: string) => {
    const file = byPath.get(path);
    return file === undefined ? context.notFound() : sendFile(context, file);
  };
  app.openapi(
    createRoute({
      method: 'get',
      path: '/',
      summary: 'The dashboard',
      responses: { 200: textResponse('The page', 'text/html'), 304: { description: 'Unchanged' } },
    }),
    (context) => serve(context, '/'),
  );
  app.openapi(
    createRoute({
      method: 'get',
      path: '/page/{file}',
      summary: 'A file of the dashboard',
      request: { params: z.object({ file: z.string() }) },
      responses: {
        200: textResponse('The file', 'text/css'),
        304: { description: 'Unchanged' },
        404: NOT_FOUND,
      },
    }),
    (context) => serve(context, `/page/${context.req.valid('param').file}`),
  );
  app.openAPIRegistry.registerPath({
    method: 'get',
    path: '/docs/{page}',
    summary: 'A page of the documentation, for example README.md or operations/monitoring.md',
    request: { params: z.object({ page: z.string() }) },
    responses: { 200: textResponse('The page', 'text/plain'), 404: NOT_FOUND },
  });
  app.get('/docs/*', (context) => serve(context, context.req.path));
}

function sendFile(context: Context, { etag, type, bytes }: PageFile): Response {
  const headers = {
    'Content-Type': type,
    'Content-Security-Policy': PAGE_POLICY,
    'Cache-Control': 'no-cache', // the browser may cache the file, but must ask with the ETag whether it has changed
    ETag: etag,
  };
  if (context.req.header('if-none-match') === etag) return context.body(null, 304, headers);
  return context.body(bytes, 200, headers);
}

function readBytes(url: URL): Uint8Array<ArrayBuffer> {
  return new Uint8Array(readFileSync(url));
}

function pageFile(name: string, bytes: Uint8Array<ArrayBuffer>): PageFile {
  return fileOf(name === 'index.html' ? '/' : `/page/${name}`, TYPES[extensionOf(name)] ?? '', bytes);
}

function docsFile(name: string, bytes: Uint8Array<ArrayBuffer>): PageFile {
  return fileOf(`/docs/${name}`, 'text/plain; charset=utf-8', bytes);
}

function fileOf(path: string, type: string, bytes: Uint8Array<ArrayBuffer>): PageFile {
  let etag: string | undefined;
  return {
    path,
    type,
    bytes,
    // computed late: in the executable, a page takes memory only after it was read
    get etag() {
      etag ??= `"${createHash('sha256').update(bytes).digest('base64url').slice(0, 22)}"`;
      return etag;
    },
  };
}

function extensionOf(name: string): string {
  return name.slice(name.lastIndexOf('.') + 1);
}
