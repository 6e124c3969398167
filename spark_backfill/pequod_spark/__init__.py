"""Spark beside Pequod: cache joins compiled to DataFrames, for what is too large to compute in one process.

    replay          a workload sent to servers            workloads      generated ones as requests
    pacing          closed and open loops
    newp  edges     the workloads of the Pequod paper     twip
    texts           of posts and comments                 draws          random draws that do not depend on partitions
    verify          a server compared with its joins      following      ranges as they were at one revision
    reading         a server's rows as a DataFrame        connection     how a server is reached
    comparing       rows that there are and must be       session        a Spark session, or what is missing for one
    plan            joins compiled: what a range holds, from base rows
    contributions   how what meets in one output key combines
    decimals        exact numbers of 64 digits            ranges         clipping, sorted partitions
    leases          backfills kept alive
    needs           what joins read: which ranges, and who computes them
    keys            keys taken apart and put together     tasks          what tasks do before their work
    home            the folder that a local Spark starts from

A module imports those below it, or beside it on the right. Nothing here is imported by the server or the clients.
"""
