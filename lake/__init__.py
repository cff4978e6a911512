"""Both tiers as Parquet files (an export) and as Iceberg tables: each record exactly once, proven equal to the log.

    log                     locates the records, and protects them from deletion while they are read
    jobs, runs              tasks (ranges of offsets), and their runners: this process, other processes, Spark
    columns                 makes rows of records
    spill, parquet, names   divide rows into files, one after another, and write them
    proof                   compares rows with the rows that must be there

Exports and tables use all of these modules. They differ in what they do next, in how they publish it, and in how they
continue after a crash (decision 0070):

    export_*    one plan that never changes; one document for each task; a manifest at the end
    table_*     one commit of files and of the table's new place, if no other writer committed first
"""
