/** The types of `./uplot.js`, the name under which src/admin/page-files.ts serves uPlot. */
export { default } from 'uplot';
