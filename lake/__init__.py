"""Both tiers as Parquet files (an export) and as Iceberg tables: each record exactly once, proven equal to the log.

    log, leases                     where the records are, and what keeps them until they are read
    jobs, runs                      tasks of offsets, and what does them: this process, other processes, Spark
    columns                         records as rows, and rows compared with rows
    row_groups, parquet, names      rows as files

An export and a table use all of these. They differ in how their work becomes visible, and in how they go on:

    export_*    a plan, once and for good; a document for each task; a manifest
    table_*     a commit of files and of the table's new place, if no other was first
"""
