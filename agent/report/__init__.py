"""What people and programs read after a run: the page, the summaries, the table in the terminal.

Each module has one entry: ``html.write_report``, ``rollup.write_rollup``, ``case_summary.write_case_summary``,
``terminal.render_result`` and ``terminal.render_plan``.
"""
