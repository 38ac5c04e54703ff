package io.weir.bench;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.util.QueryExecutionListener;

/** The plans of queries as they were in the end. Spark makes one of these, as the setting {@code spark.sql.queryExecutionListeners} says. */
public final class Plans implements QueryExecutionListener {
    static final List<String> SEEN = new CopyOnWriteArrayList<>();

    @Override
    public void onSuccess(String name, QueryExecution query, long nanos) {
        SEEN.add(query.executedPlan().toString());
    }

    @Override
    public void onFailure(String name, QueryExecution query, Exception reason) {}
}
