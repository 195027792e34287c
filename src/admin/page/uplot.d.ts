/** The page's name for uPlot's module; src/admin/page-files.ts serves it. */
export { default } from 'uplot';
