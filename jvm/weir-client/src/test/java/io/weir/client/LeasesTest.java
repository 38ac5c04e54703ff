package io.weir.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import weir.v1.Control;

class LeasesTest {
    @Test
    void renewals_come_at_a_third_of_the_shortest_lease_that_the_coordinator_told() throws Exception {
        List<Integer> calls = new ArrayList<>();
        try (Leases leases = new Leases((coflows, limit) -> {
            calls.add(coflows.size());
            return Control.RenewReply.newBuilder().addEnded(3).setLeaseMs(45_000).build();
        })) {
            leases.add(1, 600_000);
            leases.add(2, 20_000);
            leases.add(3, 0);
            // 20 s / 3.
            assertEquals(6_666, leases.pauseMs());
            leases.remove(2);
            assertEquals(60_000, leases.pauseMs(), "no more than a minute apart");
            // The coordinator began anew, with leases of 45 s.
            assertTrue(leases.renewAll(1_000));
            assertEquals(15_000, leases.pauseMs());
            assertTrue(leases.isKept(1));
            assertFalse(leases.isKept(3), "it has ended");
            for (long coflow = 10; coflow < 2_009; coflow++) {
                leases.add(coflow, 0);
            }
            calls.clear();
            assertTrue(leases.renewAll(1_000));
            assertEquals(List.of(1_000, 1_000), calls);
        }
    }

    @Test
    void a_coflow_is_kept_until_its_last_handle_is_closed_and_none_after_the_client() throws Exception {
        Leases leases = new Leases((coflows, limit) -> Control.RenewReply.getDefaultInstance());
        leases.add(1, 3_000);
        leases.add(1, 3_000);
        leases.close(1);
        assertTrue(leases.isKept(1));
        leases.close(1);
        leases.close(1);
        assertFalse(leases.isKept(1));
        leases.close();
        assertThrows(ClientClosedException.class, () -> leases.add(1, 3_000));
    }
}
