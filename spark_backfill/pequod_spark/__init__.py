"""Spark beside Pequod: cache joins compiled to DataFrames, for what is too large to compute in one process.

    verify          a server compared with its joins  following    ranges as they were at one revision
    connection      how a server is reached           reading      its rows as a DataFrame
    session         a Spark session, or what is missing for one
    twip            the workload of the Pequod paper      draws      random draws that do not depend on partitions
    plan            joins compiled: what a range holds, from base rows
    contributions   how what meets in one output key combines
    decimals        exact numbers of 64 digits            ranges     clipping, containing ranges, sorted partitions
    keys            keys taken apart and put together

A module imports those below it only. Nothing here is imported by the server or the clients.
"""
